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

// HostCheckOptions configures Front.
type HostCheckOptions struct {
	// LoopbackOnly reports that only this machine reaches the listener. Requests must then name this machine: a web
	// page could reach it by a domain name that resolves to it (DNS rebinding). The same applies to requests
	// that arrive at a loopback address of another listener without a Guard.
	LoopbackOnly bool
	AnyHost      bool     // a reverse proxy in front, which forwards other host names, authenticates callers
	Hosts        []string // accepted host names in addition to those of this machine
	HostsSetting string   // name of the setting that holds Hosts, for the refusal
	// Guarded reports that a Guard follows, which also checks credentials of requests from pages of other
	// sites.
	Guarded     bool
	CrossOrigin bool // pages of all sites may use a service without a guard (CORS)
	Logger      *slog.Logger
}

// HostCheck is the first handler of a listener: it normalizes the path, and refuses cross-site requests of a
// visitor's browser, with authentication or without.
func HostCheck(o HostCheckOptions, next http.Handler) http.Handler {
	f := &hostCheck{opts: o, sites: NewSites(o.Hosts, false), next: next}
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		f.ownHostNames = hostNames([]string{name, short})
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

type hostCheck struct {
	opts         HostCheckOptions
	ownHostNames []string // names of this machine
	sites        Sites
	next         http.Handler
}

// ServeHTTP implements http.Handler.
func (f *hostCheck) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	foldPath(r.URL)
	err := f.checkHost(r)
	if err == nil && !f.opts.Guarded && !f.opts.CrossOrigin {
		err = f.sites.checkOrigin(r)
	}
	if err != nil {
		f.opts.Logger.DebugContext(r.Context(), "request refused", "address", clientAddress(r, false), "host",
			clipReason(r.Host),
			"error", err)
		writeError(w, farm.CodeForbidden, err)
		limitBodyWait(w, r)
		return
	}
	if r.ProtoMajor == 2 {
		paced := newPacedStream(w)
		defer paced.setDeadline(0)
		w = paced
	}
	f.next.ServeHTTP(w, r)
}

// checkHost refuses a request whose host is not a name of this machine.
func (f *hostCheck) checkHost(r *http.Request) error {
	// no browser leaves it out
	if !f.opts.LoopbackOnly && (f.opts.Guarded || !arrivedOnLoopback(r)) || f.opts.AnyHost || r.Host == "" {
		return nil
	}
	name := hostName(r.Host)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(f.ownHostNames, name) ||
		slices.Contains(f.sites.Hosts, name) {
		return nil
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	return farm.Errorf(farm.CodeForbidden,
		"This service does not answer for the host %.100q on a loopback address: use localhost or an address, or "+
			"add the name to %s", r.Host, f.opts.HostsSetting)
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
