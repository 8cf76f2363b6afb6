package portal

import "net/http"

// contentSecurityPolicy lets a page use what the portal serves, and nothing else.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"font-src 'self'; " +
	"connect-src 'self'; " +
	"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// isolatePages adds the headers that isolate a page, and rejects changes that a page of another site
// requests.
func (p *portal) isolatePages(next http.Handler) http.Handler {
	sites := http.NewCrossOriginProtection()
	for _, origin := range p.opts.AllowedOrigins {
		_ = sites.AddTrustedOrigin(origin) // an invalid origin matches no page
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		securityHeaders(h)
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if err := sites.Check(r); err != nil {
			p.showFailure(w, r, http.StatusForbidden, &failure{
				What: "Change refused", Reason: "The request comes from another site. Nothing was changed.",
				Next: "To make this change, use the portal itself. Otherwise close the page that sent the request.",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// securityHeaders sets what keeps a page to itself.
func securityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}
