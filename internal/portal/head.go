package portal

import "net/http"

// policy lets a page use what the portal serves, and nothing else.
const policy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// guarded puts the headers around a handler that keep a page to itself, and refuses changes
// that a page of another site asks for.
func guarded(next http.Handler) http.Handler {
	sites := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		heads(h)
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if err := sites.Check(r); err != nil {
			http.Error(w, "The request comes from a page of another site.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// heads sets what keeps a page to itself.
func heads(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}
