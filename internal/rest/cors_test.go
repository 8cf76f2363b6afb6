package rest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCrossOrigin: a script of another site may send requests with its own credentials, and a preflight reveals
// nothing about the service.
func TestCrossOrigin(t *testing.T) {
	g := newGate(t)
	open := AllowCrossOrigin(g.handler)
	for name, c := range map[string]struct {
		method string
		header []string
		code   int
		allow  string // Access-Control-Allow-Origin
	}{
		"no page": {"GET", []string{"Authorization", g.key(t)}, 200, ""},
		"a page": {
			"GET", []string{"Origin", "https://ci.test", "Authorization", g.key(t)}, 200, "*",
		},
		"a page that changes": {"POST", []string{
			"Origin", "https://ci.test", "Sec-Fetch-Site", "cross-site", "Authorization", g.key(t),
		}, 200, "*"},
		"what a browser has kept": {"POST", []string{
			"Origin", "https://ci.test", "Sec-Fetch-Site", "cross-site", "Authorization", rootBasic(rootToken),
		}, 403, "*"},
		"a page without a token": {"GET", []string{"Origin", "https://ci.test"}, 401, "*"},
		"a preflight": {
			"OPTIONS", []string{"Origin", "https://ci.test", "Access-Control-Request-Method", "POST"}, 204, "*",
		},
		"OPTIONS of something else": {"OPTIONS", []string{"Origin", "https://ci.test"}, 401, "*"},
		"OPTIONS without a page":    {"OPTIONS", []string{"Access-Control-Request-Method", "POST"}, 401, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/vm", nil)
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Add(c.header[i], c.header[i+1])
		}
		w := httptest.NewRecorder()
		open.ServeHTTP(w, r)
		if w.Code != c.code || w.Header().Get("Access-Control-Allow-Origin") != c.allow ||
			strings.Contains(w.Header().Get("Access-Control-Expose-Headers"), RequestIDHeader) != (c.allow != "") ||
			w.Header().Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		if c.code == http.StatusNoContent &&
			(w.Header().Get("Access-Control-Allow-Methods") != "GET, HEAD, POST, PUT, DELETE" ||
				w.Header().Get("Allow") != "" ||
				!strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "Authorization") ||
				w.Header().Get("Access-Control-Max-Age") != "600") {
			t.Errorf("%s: %v", name, w.Header())
		}
	}
}
