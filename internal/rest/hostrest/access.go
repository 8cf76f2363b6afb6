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

// minTokenLength is the minimum length of a token.
const minTokenLength = 16

// Access configures which callers are allowed.
type Access struct {
	Token  string // that callers must send; "": none
	Listen string // host:port to listen on; without a token it must be a loopback address
	// ReadWithoutToken lets callers on a loopback address read without the token; changes need it.
	ReadWithoutToken bool
	AllowedHosts     []string // further allowed host names; loopback names and the reached address always are
}

// accessCheck authorizes callers.
type accessCheck struct {
	tokenHash        [sha256.Size]byte
	noToken          bool // no token is required
	readWithoutToken bool // no token is required to read
	allowedHosts     []string
}

// SetAccess replaces the access configuration.
func (s *Server) SetAccess(a Access) error {
	listen, _, err := net.SplitHostPort(a.Listen)
	if err != nil {
		return fmt.Errorf("invalid listen address %q: want host:port, such as 127.0.0.1:8081", a.Listen)
	}
	switch {
	case a.Token == "" && !IsLoopbackAddress(a.Listen):
		return errors.New("a token is required unless the listen address is a loopback address")
	case a.Token != "" && len(a.Token) < minTokenLength:
		return fmt.Errorf("the token is too short: want at least %d characters", minTokenLength)
	}
	if a.ReadWithoutToken && a.Token == "" {
		return errors.New("a token is required for requests that change something, but none is configured")
	}
	d := &accessCheck{
		readWithoutToken: a.ReadWithoutToken &&
			IsLoopbackAddress(a.Listen), tokenHash: sha256.Sum256([]byte(a.Token)), noToken: a.Token == "",
		allowedHosts: []string{normalizeHost(listen)},
	}
	for _, n := range a.AllowedHosts {
		d.allowedHosts = append(d.allowedHosts, normalizeHost(n))
	}
	s.access.Store(d)
	return nil
}

// IsLoopbackAddress reports whether only this machine can reach a listen address.
func IsLoopbackAddress(listen string) bool {
	name, _, err := net.SplitHostPort(listen)
	return err == nil && isLoopback(normalizeHost(name))
}

func isLoopback(name string) bool {
	addr, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// normalizeHost normalizes a host name for comparison.
func normalizeHost(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return addr.Unmap().WithZone("").String()
	}
	return name
}

// failure is an error response.
type failure struct {
	status  int // HTTP status
	message string
}

func (f failure) Error() string { return f.message }

// authorize returns why a request to a route is refused, or nil.
func (d *accessCheck) authorize(r *http.Request, to route) error {
	if !d.isKnownHost(r) {
		// A foreign domain name may resolve to this host, so that a browser takes its page for one of this
		// host.
		return failure{
			http.StatusForbidden,
			fmt.Sprintf(
				"The host scanner is not asked by the name %q: use localhost or its address, or add the name "+
					"to allowed-hosts", clip(r.Host)),
		}
	}
	if fromWebPage(r) {
		return failure{http.StatusForbidden, "The host scanner answers no pages of the web"}
	}
	if to.public || d.noToken || d.readWithoutToken && !to.changesState || d.hasToken(r.Header["Authorization"]) {
		return nil
	}
	return failure{
		http.StatusUnauthorized, "The token is missing or wrong: send that of the service (Authorization: Bearer)",
	}
}

// isKnownHost reports whether a request names this host.
func (d *accessCheck) isKnownHost(r *http.Request) bool {
	name := r.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = normalizeHost(name)
	if isLoopback(name) || name != "" && slices.Contains(d.allowedHosts, name) {
		return true
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && name == normalizeHost(at.IP.String())
}

// fromWebPage reports whether a browser makes a request for a web page: those have headers that name the page. A
// request for an address that a user typed has none.
func fromWebPage(r *http.Request) bool {
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

// hasToken reports whether the headers contain the token, in a time that does not depend on how much of it is
// right.
func (d *accessCheck) hasToken(headers []string) bool {
	if len(headers) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(sum[:], d.tokenHash[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// clip bounds the text of a request that a response repeats.
func clip(text string) string { return text[:min(len(text), 100)] }
