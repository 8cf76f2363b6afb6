package rest

import (
	"net/http"
	"net/netip"
)

// IsLoopbackRequest reports whether a request comes from a loopback address of this machine.
func IsLoopbackRequest(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}
