package rest

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// Sites distinguishes pages that may use a service in their visitor's browser from pages of other sites. The
// zero value trusts only pages of the requested address.
type Sites struct {
	Hosts    []string // lower-case names of other addresses whose pages may too, such as that of a reverse proxy
	AllowAll bool     // pages of all sites may read responses (CORS)
}

// NewSites returns Sites for host names as users write them.
func NewSites(hosts []string, open bool) Sites { return Sites{hostNames(hosts), open} }

var crossOrigin = http.NewCrossOriginProtection()

// checkOrigin refuses a request that a page of another site makes in its visitor's browser: to change something, to
// open a WebSocket, or to read. Programs send no page headers and are not affected; neither is a user who
// follows a link.
func (s Sites) checkOrigin(r *http.Request) error {
	h := r.Header
	if h["Origin"] == nil && h["Sec-Fetch-Site"] == nil || s.trusts(h.Get("Origin")) {
		return nil
	}
	asked := r
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		if h["Upgrade"] == nil &&
			(s.AllowAll || h.Get("Sec-Fetch-Mode") == "navigate" || h.Get("Sec-Fetch-Site") == "same-site") {
			return nil
		}
		asked = &http.Request{Method: http.MethodPost, URL: r.URL, Host: r.Host, Header: h} // checked alike
	}
	if crossOrigin.Check(asked) != nil {
		return otherSiteError()
	}
	return nil
}

// trusts reports whether a page's origin, such as https://name:8443, has a trusted host.
func (s Sites) trusts(origin string) bool {
	if len(s.Hosts) == 0 {
		return false
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && slices.Contains(s.Hosts, hostName(u.Host))
}

// hostName returns the name or address of a host without its port, normalized for comparison.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().WithZone("").String()
	}
	return host
}

func otherSiteError() error {
	return farm.Errorf(farm.CodeForbidden, "Cross-site request refused: it was sent by a web page of another site")
}
