package rest

import "net/http"

// AllowCrossOrigin lets scripts of pages of other sites call a service and read its responses. They send their own
// credentials: a browser adds none automatically, since no site is named. A preflight request, which carries no
// credentials, is answered to all.
func AllowCrossOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header["Origin"] == nil {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", RequestIDHeader+", ETag, Retry-After")
		if r.Method != http.MethodOptions || r.Header["Access-Control-Request-Method"] == nil {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE")
		h.Set("Access-Control-Allow-Headers",
			"Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID")
		h.Set("Access-Control-Max-Age", "600") // seconds
		w.WriteHeader(http.StatusNoContent)
	})
}
