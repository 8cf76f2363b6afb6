package rest

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// FrontOptions configures Front.
type FrontOptions struct {
	// Loopback reports that only this machine reaches the listener. Requests must then name this machine: a web
	// page could reach it by a domain name that resolves to it (DNS rebinding). The same applies to requests
	// that arrive at a loopback address of another listener without a Guard.
	Loopback bool
	AnyHost  bool     // a reverse proxy in front, which forwards other host names, authenticates callers
	Hosts    []string // accepted host names in addition to those of this machine
	Setting  string   // name of the setting that holds Hosts, for the refusal
	// Guarded reports that a Guard follows, which also checks credentials of requests from pages of other
	// sites.
	Guarded     bool
	CrossOrigin bool // pages of all sites may use a service without a guard (CORS)
	Logger      *slog.Logger
}

// Front is the first handler of a listener: it normalizes the path, and refuses cross-site requests of a
// visitor's browser, with authentication or without.
func Front(o FrontOptions, next http.Handler) http.Handler {
	f := &front{o: o, sites: NewSites(o.Hosts, false), next: next}
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		f.own = hostNames([]string{name, short})
	}
	return f
}

// hostNames normalizes host names for comparison.
func hostNames(names []string) []string {
	var out []string
	for _, name := range names {
		if name = hostName(strings.TrimSpace(name)); name != "" {
			out = append(out, name)
		}
	}
	return out
}

type front struct {
	o     FrontOptions
	own   []string // names of this machine
	sites Sites
	next  http.Handler
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	foldPath(r.URL)
	err := f.checkHost(r)
	if err == nil && !f.o.Guarded && !f.o.CrossOrigin {
		err = f.sites.check(r)
	}
	if err != nil {
		f.o.Logger.DebugContext(r.Context(), "request refused", "address", addressOf(r, false), "host", clipped(r.Host),
			"error", err)
		answerError(w, farm.CodeForbidden, err)
		hurry(w, r)
		return
	}
	if r.ProtoMajor == 2 {
		paced := newPacedStream(w)
		defer paced.limit(0)
		w = paced
	}
	f.next.ServeHTTP(w, r)
}

// checkHost refuses a request whose host is not a name of this machine.
func (f *front) checkHost(r *http.Request) error {
	// no browser leaves it out
	if !f.o.Loopback && (f.o.Guarded || !arrivedOnLoopback(r)) || f.o.AnyHost || r.Host == "" {
		return nil
	}
	name := hostName(r.Host)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(f.own, name) ||
		slices.Contains(f.sites.Hosts, name) {
		return nil
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	return farm.Errorf(farm.CodeForbidden,
		"This service does not answer for the host %.100q on a loopback address: use localhost or an address, or "+
			"add the name to %s", r.Host, f.o.Setting)
}

// arrivedOnLoopback reports whether a request came to a loopback address of this machine.
func arrivedOnLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}

// foldPath merges repeated slashes of a path and removes one at its end, as two clients require. Escaped
// slashes stay, since they are part of a name.
func foldPath(u *url.URL) {
	path := u.EscapedPath()
	if !strings.Contains(path, "//") && (len(path) < 2 || path[len(path)-1] != '/') {
		return
	}
	folded := make([]byte, 0, len(path))
	for i := range len(path) {
		if path[i] != '/' || len(folded) == 0 || folded[len(folded)-1] != '/' {
			folded = append(folded, path[i])
		}
	}
	if n := len(folded); n > 1 && folded[n-1] == '/' {
		folded = folded[:n-1]
	}
	if plain, err := url.PathUnescape(string(folded)); err == nil {
		u.Path, u.RawPath = plain, string(folded)
	}
}

// IsLoopback reports whether only this machine reaches a listener.
func IsLoopback(l net.Listener) bool {
	addr, ok := l.Addr().(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}
