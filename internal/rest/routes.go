package rest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Request is the input of a handler: the request and its decoded parameters.
type Request struct {
	*http.Request
	Params *Params
}

// HandlerFunc is a handler: it returns the body of the response or an error. A nil body leaves the key out;
// Null writes it as null.
type HandlerFunc func(r *Request) (any, error)

// RawHandlerFunc is a handler that writes its own successful response, for bulk bytes and streams. If it
// returns an error it must not have written anything.
type RawHandlerFunc func(w http.ResponseWriter, r *http.Request) error

// Route is one entry of a service's table of routes.
type Route struct {
	Pattern             string // method and path, as a pattern of http.ServeMux
	Permission          string // what the caller needs; also Open, Known, Node and NodeOrCaller
	AllowsRegistryToken bool   // a registry token may use it, and the handler authorizes it by the node's orders
	Handle              HandlerFunc
	HandleRaw           RawHandlerFunc // instead of Do
	Waits               bool           // it waits on purpose: no timeout
	Streams             bool           // it runs until its caller disconnects or loses the permission
	DecodesBody         bool           // its handler decodes the body (Params.Raw), not as parameters
	MaxBody             int64          // with Typed: the largest body that is read, in bytes; 0 is MaxBody
	// for node routes: refuses other callers before a large body is read
	VerifyNode func(r *http.Request) error
	OwnEvents  bool // its effect has its own events, so it gets no audit event
	// steady traffic (nodes, pushes, logs, handshakes): audited only if refused
	Frequent bool
}

// WithTimeout adds a timeout to every route that does not wait on purpose.
func WithTimeout(timeout time.Duration, routes []Route) []Route {
	limited := slices.Clone(routes)
	for i, route := range limited {
		if route.Waits || route.Handle == nil {
			continue
		}
		limited[i].Handle = func(r *Request) (any, error) {
			ctx, cancel := context.WithTimeout(r.Context(), timeout)
			defer cancel()
			return route.Handle(&Request{Request: r.WithContext(ctx), Params: r.Params})
		}
	}
	return limited
}

// NonNil returns an empty list for nil, so that the response has an array.
func NonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Handler serves a table of routes without a guard. Responses to unknown paths and methods have the envelope,
// too.
func Handler(routes []Route, log *slog.Logger) http.Handler {
	return (*Guard)(nil).Handler(routes, log)
}

// Handler serves a table of routes to authorized callers, like the function Handler.
func (g *Guard) Handler(routes []Route, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	for _, route := range routes {
		mux.Handle(route.Pattern, g.guardHandler(route, g.routeHandler(route, log)))
	}
	unrouted := g.guardHandler(Route{Permission: AnyCredential},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			respondUnrouted(w, r, mux)
		}))
	return withRequestID(recoverPanics(log, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		findHandler(mux, r, unrouted).ServeHTTP(w, r)
	})))
}

// findHandler returns the handler of a request.
func findHandler(mux *http.ServeMux, r *http.Request, unrouted http.Handler) http.Handler {
	do, pattern := mux.Handler(r)
	switch {
	case pattern == "" || isUncleanPath(r.URL.EscapedPath()):
		return unrouted
	case strings.Contains(pattern, "{"):
		return mux // which matches again and reads the path's values
	default:
		r.Pattern = pattern
		return do
	}
}

func (g *Guard) routeHandler(route Route, log *slog.Logger) http.Handler {
	if route.HandleRaw != nil {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer abortOnPanic(r, log)
			if err := route.HandleRaw(w, r); err != nil {
				g.recordAttempt(r)
				respondError(w, r, log, err)
				g.recordFailure(w, r, &route, err)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		params, err := g.readRequest(w, r, &route)
		if err != nil {
			g.recordAttempt(r)
			respondError(w, r, log, err)
			g.recordFailure(w, r, &route, err)
			return
		}
		body, err := route.Handle(&Request{Request: r, Params: params})
		if err != nil {
			g.recordAttempt(r)
		}
		respond(w, r, log, body, err)
		g.recordFailure(w, r, &route, err)
	})
}

// maxAnonymousBody is the largest body that is read from an unauthenticated caller, in bytes. Otherwise any client
// that reaches the port could fill the memory.
const maxAnonymousBody = 256 << 10

// readRequest reads the parameters of a request.
func (g *Guard) readRequest(w http.ResponseWriter, r *http.Request, route *Route) (*Params, error) {
	limit := cmp.Or(route.MaxBody, MaxBody)
	large := r.ContentLength < 0 || r.ContentLength > maxAnonymousBody
	if anonymous := g != nil && large && !CallerOf(r.Context()).IsAuthenticated(); anonymous {
		if route.VerifyNode == nil {
			limit = min(limit, maxAnonymousBody)
		} else if err := route.VerifyNode(r); err != nil {
			return nil, err
		}
	}
	if route.DecodesBody {
		return readRaw(w, r, limit)
	}
	return readParams(w, r, limit)
}

// isUncleanPath reports whether the mux would redirect a path to a cleaner one. Clients of an API do not follow that
// with their body, and its response is not an envelope.
func isUncleanPath(p string) bool {
	clean := path.Clean("/" + p)
	return p != clean && (clean == "/" || p != clean+"/")
}

// respondUnrouted writes the mux's own response (404, 405 with Allow, or a redirect to the clean path) in the
// envelope.
func respondUnrouted(w http.ResponseWriter, r *http.Request, mux *http.ServeMux) {
	said := muxResponse{}
	mux.ServeHTTP(said, r)
	if allow := said.Header().Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		writeEnvelope(w, http.StatusMethodNotAllowed, "FAIL",
			"Method "+r.Method+" is not allowed here (allowed: "+allow+")",
			nil)
		return
	}
	writeEnvelope(w, http.StatusNotFound, "FAIL", "No such route: "+r.Method+" "+r.URL.Path, nil)
}

// muxResponse records the headers of the mux's own response and drops the rest.
type muxResponse http.Header

func (h muxResponse) Header() http.Header       { return http.Header(h) }
func (muxResponse) Write(b []byte) (int, error) { return len(b), nil }
func (muxResponse) WriteHeader(int)             {}

// maxBodyWait is how long a client has to send the rest of a body that no handler reads.
const maxBodyWait = 5 * time.Second

// limitBodyWait bounds how long a connection waits for the rest of a body: before the next request the server reads it,
// and would wait indefinitely for an announced body that never comes.
func limitBodyWait(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	wait := maxBodyWait
	if w.Header().Get("Connection") == "close" { // its body came too slowly
		wait = 0
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(wait))
}

// RequestIDHeader is the header that contains the ID of a request.
const RequestIDHeader = "X-Request-Id"

// noSniff prevents browsers from guessing content types; it is not changed.
var noSniff = []string{"nosniff"}

// withRequestID assigns an ID to every request and returns it to the client.
func withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b [8]byte
		_, _ = rand.Read(b[:])
		h := w.Header()
		h[RequestIDHeader], h["X-Content-Type-Options"] = []string{hex.EncodeToString(b[:])}, noSniff
		next.ServeHTTP(w, r)
		limitBodyWait(w, r)
	})
}

// abortOnPanic breaks the connection of a handler that panicked: it may have written a part of its response,
// which must not look complete.
func abortOnPanic(r *http.Request, log *slog.Logger) {
	if p := recover(); p == http.ErrAbortHandler { //nolint:errorlint // the sentinel is compared as net/http does
		panic(p) // on purpose
	} else if p != nil {
		log.ErrorContext(r.Context(), "handler panicked", "panic", p, "stack", string(debug.Stack()))
		panic(http.ErrAbortHandler)
	}
}

// recoverPanics turns a panic of a handler into an internal error.
func recoverPanics(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { //nolint:contextcheck // the response uses the context of the request
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // the sentinel is compared as net/http does
				panic(p)
			}
			log.ErrorContext(r.Context(), "handler panicked", "panic", p, "stack", string(debug.Stack()))
			respondError(w, r, log, farm.Errorf(farm.CodeInternal, "panic"))
		}()
		next.ServeHTTP(w, r)
	})
}
