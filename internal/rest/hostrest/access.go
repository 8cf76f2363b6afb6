package hostrest

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// minToken is the minimum length of a token.
const minToken = 16

// Access configures which callers are allowed.
type Access struct {
	Token  string // that callers must send; "": none
	Listen string // host:port to listen on; without a token it must be a loopback address
	// ReadFree lets callers on a loopback address read without the token; changes need it.
	ReadFree bool
	Names    []string // further allowed host names; loopback names and the reached address always are
}

// accessCheck authorizes callers.
type accessCheck struct {
	token [sha256.Size]byte
	open  bool // no token is required
	read  bool // no token is required to read
	names []string
}

// SetAccess replaces the access configuration.
func (s *Server) SetAccess(a Access) error {
	listen, _, err := net.SplitHostPort(a.Listen)
	if err != nil {
		return fmt.Errorf("listen address %q: must be host:port, such as 127.0.0.1:8081", a.Listen)
	}
	switch {
	case a.Token == "" && !Loopback(a.Listen):
		return errors.New("a token is required unless the listen address is a loopback address")
	case a.Token != "" && len(a.Token) < minToken:
		return fmt.Errorf("the token is too short: it must have at least %d characters", minToken)
	}
	if a.ReadFree && a.Token == "" {
		return errors.New("changes need a token, and there is none")
	}
	d := &accessCheck{
		read: a.ReadFree &&
			Loopback(a.Listen), token: sha256.Sum256([]byte(a.Token)), open: a.Token == "",
		names: []string{plainName(listen)},
	}
	for _, n := range a.Names {
		d.names = append(d.names, plainName(n))
	}
	s.door.Store(d)
	return nil
}

// Loopback reports whether only this machine can reach a listen address.
func Loopback(listen string) bool {
	name, _, err := net.SplitHostPort(listen)
	return err == nil && isLoopback(plainName(name))
}

func isLoopback(name string) bool {
	addr, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// plainName normalizes a host name for comparison.
func plainName(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return addr.Unmap().WithZone("").String()
	}
	return name
}

// failure is an error response.
type failure struct {
	code int // HTTP status
	text string
}

func (f failure) Error() string { return f.text }

// admit returns why a request to a route is refused, or nil.
func (d *accessCheck) admit(r *http.Request, to route) error {
	if !d.knows(r) {
		// A foreign domain name may resolve to this host, so that a browser takes its page for one of this
		// host.
		return failure{
			http.StatusForbidden,
			fmt.Sprintf(
				"The host scanner is not asked by the name %q: use localhost or its address, or add the name "+
					"to allowed-hosts", clipped(r.Host)),
		}
	}
	if fromPage(r) {
		return failure{http.StatusForbidden, "The host scanner answers no pages of the web"}
	}
	if to.free || d.open || d.read && !to.changes || d.shown(r.Header["Authorization"]) {
		return nil
	}
	return failure{http.StatusUnauthorized, "The token is missing or wrong"}
}

// knows reports whether a request names this host.
func (d *accessCheck) knows(r *http.Request) bool {
	name := r.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = plainName(name)
	if isLoopback(name) || name != "" && slices.Contains(d.names, name) {
		return true
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && name == plainName(at.IP.String())
}

// fromPage reports whether a browser makes a request for a web page: those have headers that name the page. A
// request for an address that a user typed has none.
func fromPage(r *http.Request) bool {
	if len(r.Header["Origin"]) > 0 {
		return true
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "none" && site != "same-origin" {
			return true
		}
	}
	return false
}

// shown reports whether the headers contain the token, in a time that does not depend on how much of it is
// right.
func (d *accessCheck) shown(headers []string) bool {
	if len(headers) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(sum[:], d.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// clipped bounds the text of a request that a response repeats.
func clipped(text string) string { return text[:min(len(text), 100)] }
