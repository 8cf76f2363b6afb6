package rest

import (
	"net/http"
	"net/netip"
	"strings"
)

// clientAddress returns the client address of a request. The header of a reverse proxy counts only with proxied,
// since any client can send it. Of a list the last address counts, which the proxy itself has seen.
func clientAddress(r *http.Request, proxied bool) string {
	if proxied {
		for _, name := range []string{"X-Forwarded-For", "X-Real-Ip"} {
			lines := r.Header[name]
			if len(lines) == 0 {
				continue
			}
			last := lines[len(lines)-1]
			if addr, ok := parseAddress(last[strings.LastIndexByte(last, ',')+1:]); ok {
				return addr
			}
		}
	}
	addr, _ := parseAddress(r.RemoteAddr)
	return addr
}

// parseAddress reads an address, with or without a port.
func parseAddress(text string) (string, bool) {
	text = strings.TrimSpace(text)
	addr, err := netip.ParseAddr(text)
	if err != nil {
		port, err := netip.ParseAddrPort(text)
		if err != nil {
			return "", false
		}
		addr = port.Addr()
	}
	return addr.Unmap().WithZone("").String(), true
}
