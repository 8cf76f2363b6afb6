package rest

import (
	"net/http"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// IsWebSocketUpgrade reports whether a request opens a WebSocket. It refuses an upgrade to another protocol.
func IsWebSocketUpgrade(r *http.Request) (bool, error) {
	asked := r.Header.Get("Upgrade")
	switch {
	case asked == "":
		return false, nil
	case !strings.EqualFold(asked, "websocket") || r.ProtoMajor != 1:
		return false, farm.Invalid("Upgrade", "must be websocket, over HTTP/1.1")
	}
	return true, nil
}

// CheckSameSite refuses a WebSocket that a page of another site opens, which a browser allows. A guard has already
// checked this, and knows the pages that may.
func CheckSameSite(r *http.Request) error {
	if auditOf(r.Context()) != nil {
		return nil
	}
	return Sites{}.checkOrigin(r)
}
