package rest

import (
	"net/http"
	"net/netip"
)

// FromHere says whether a request comes from a loopback address of this machine.
func FromHere(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}
