package rest

import (
	"net/http"
	"net/netip"
)

// forwardingHeaders are set by a proxy for the caller behind it.
var forwardingHeaders = []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}

// IsLoopbackRequest reports whether a request comes from a loopback address of this machine, and was not passed on by
// a proxy here.
func IsLoopbackRequest(r *http.Request) bool {
	for _, name := range forwardingHeaders {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}
