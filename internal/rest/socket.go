package rest

import (
	"net/http"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// Upgrades reports whether a request begins a WebSocket. One that asks for another protocol is
// refused.
func Upgrades(r *http.Request) (bool, error) {
	asked := r.Header.Get("Upgrade")
	switch {
	case asked == "":
		return false, nil
	case !strings.EqualFold(asked, "websocket") || r.ProtoMajor != 1:
		return false, farm.Invalid("Upgrade", "must be websocket, in HTTP/1.1; nothing else is spoken here")
	}
	return true, nil
}

// SameSite refuses the beginning of a WebSocket that a page of another site asks for, which a
// browser lets it do. A guard has done so already, and knows of pages that may.
func SameSite(r *http.Request) error {
	if passageOf(r.Context()) != nil {
		return nil
	}
	return Sites{}.check(r)
}
