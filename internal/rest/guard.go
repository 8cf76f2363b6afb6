package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// What a Route says of its callers instead of a permission of the service. Besides these there
// is farm.PermRoot.
const (
	Open        = "-"             // it needs no credential
	Known       = "known"         // any credential that counts will do
	Node        = "node"          // the node link: the handler judges the credential of a node, or the join token
	NodeOrKnown = "node-or-known" // as Node, but who is known needs neither
)

// Identifier says who makes a request.
type Identifier interface {
	// Identify gives an error with the code unauthenticated when the credentials do not count,
	// and unavailable when that cannot be told now.
	Identify(r *http.Request) (auth.Identity, error)
	// Still is Identify for a request that goes on since a while. was is what it gave then.
	Still(r *http.Request, was auth.Identity) (auth.Identity, error)
	// Schemes gives the kinds of credentials that are accepted in the header Authorization.
	Schemes() []string
}

var _ Identifier = (*auth.Authenticator)(nil)

// GuardOptions are what a guard judges by.
type GuardOptions struct {
	Who     Identifier
	Judge   *auth.Judge
	Failed  *auth.Failures // of the root token, wherever it is given; nil: of this guard alone
	Proxied bool           // a reverse proxy is in front, which says whom a request is from
	Origins []string       // pages of other addresses that may change things, as https://host
	Auditor Auditor        // gets what is audited, besides the log; nil: nobody
	Logger  *slog.Logger
}

// Guard judges every request before its handler: who makes it, and may they. Without a
// credential nothing can be learnt of paths and methods but what Open routes show. A nil Guard
// lets everything through.
type Guard struct {
	o          GuardOptions
	challenges map[bool][]string // for a browser's script or not -> values of WWW-Authenticate
	sites      *http.CrossOriginProtection
	noise      auth.Failures // refusals that are audited one by one
	leftOut    atomic.Int64  // those that were not, since the last one that was
}

// NewGuard makes a guard. An origin that is none is an error.
func NewGuard(o GuardOptions) (*Guard, error) {
	if o.Failed == nil {
		o.Failed = &auth.Failures{}
	}
	g := &Guard{o: o, challenges: map[bool][]string{}, sites: http.NewCrossOriginProtection()}
	for _, origin := range o.Origins {
		if err := g.sites.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("%q is not of the form https://host: %w", origin, err)
		}
	}
	for _, scheme := range o.Who.Schemes() {
		text := scheme + realm
		if scheme == basic {
			text += `, charset="UTF-8"`
		} else {
			g.challenges[true] = append(g.challenges[true], text)
		}
		g.challenges[false] = append(g.challenges[false], text)
	}
	return g, nil
}

// The kinds of credentials in the header Authorization.
const (
	basic  = "Basic"
	bearer = "Bearer"
)

// challengeHeader says which credentials would do, each with the realm.
const (
	challengeHeader = "Www-Authenticate"
	realm           = ` realm="buildyard"`
)

// guarded puts the judgement before a handler. It is over when the handler runs, so that a
// request which hangs keeps little of it; a poll, which its handler judges, keeps nothing.
func (g *Guard) guarded(route Route, next http.Handler) http.Handler {
	if g == nil || route.Permission == Node && route.Steady {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, admitted := g.admit(w, r, &route)
		if p == nil {
			return
		}
		defer p.close(r.Context())
		if route.Follows {
			within, leave := g.attended(admitted, p)
			defer leave()
			admitted = within
		}
		next.ServeHTTP(w, admitted)
		p.ended = true
	})
}

// admit gives what is known of a request that may go on to its handler, or answers it.
func (g *Guard) admit(w http.ResponseWriter, r *http.Request, route *Route) (*passage, *http.Request) {
	p := &passage{guard: g, route: route, verb: r.Method, request: w.Header().Get(RequestIDHeader)}
	p.rules, p.Address = g.o.Judge.Rules(), addressOf(r, g.o.Proxied)
	if err := g.judge(p, r); err != nil {
		g.refuse(w, r, p, err)
		return nil, nil
	}
	return p, r.WithContext(context.WithValue(r.Context(), passageKey{}, p))
}

// judge says who makes a request and whether they may.
func (g *Guard) judge(p *passage, r *http.Request) error {
	needs := p.route.Permission
	if needs == Node {
		return nil
	}
	if needs != Open {
		who, err := g.o.Who.Identify(r)
		var behind *auth.Identity
		if err == nil {
			behind, err = actedFor(r)
		}
		if err == nil {
			p.Identity, p.For = who, behind
		} else if needs != NodeOrKnown {
			return g.limited(r, p.Address, err)
		} else {
			p.tried = err
		}
	}
	if err := g.sameSite(r); err != nil {
		return err
	}
	switch needs {
	case Open, Known, NodeOrKnown:
		return nil
	}
	return p.Need(farm.Permission(needs))
}

// limited counts wrong root tokens, which could be guessed. What else is refused is signed, and
// says to an honest client that it has to make a new session.
func (g *Guard) limited(r *http.Request, addr string, refusal error) error {
	if farm.CodeOf(refusal) == farm.CodeUnauthenticated && scheme(r) == basic && g.o.Failed.Count(auth.RootName, addr) {
		return auth.TooManyFailures()
	}
	return refusal
}

// retold makes the refusal of a handler that took a caller who was not known for a node the one
// of a wrong root token, where that was shown.
func (g *Guard) retold(r *http.Request, err error) error {
	p := passageOf(r.Context())
	if p == nil || p.tried == nil || farm.CodeOf(err) != farm.CodeUnauthenticated {
		return err
	}
	return g.limited(r, p.Address, err)
}

// scheme gives the kind of credentials of a request.
func scheme(r *http.Request) string {
	text, _, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	for _, known := range []string{basic, bearer} {
		if strings.EqualFold(text, known) {
			return known
		}
	}
	return ""
}

// sameSite refuses what a page of another site lets its visitor's browser do. A browser sends
// cookies, certificates and Basic credentials along by itself, but never a Bearer value.
func (g *Guard) sameSite(r *http.Request) error {
	asked := r
	if r.Header["Upgrade"] != nil && r.Method == http.MethodGet { // the begin of a WebSocket
		asked = &http.Request{Method: http.MethodPost, URL: r.URL, Host: r.Host, Header: r.Header}
	}
	switch asked.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return nil
	}
	if scheme(r) != bearer && g.sites.Check(asked) != nil {
		return otherSite()
	}
	return nil
}

// refuse answers a request that does not reach its handler.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, p *passage, err error) {
	p.fail(err)
	p.ended = true
	if p.code == farm.CodeUnauthenticated {
		g.challenge(w, r)
	}
	answerError(w, p.code, err)
	p.close(r.Context())
}

// challenge says which credentials would do. A script in a browser is not told of Basic ones:
// the browser would ask its user for them in a window of its own.
func (g *Guard) challenge(w http.ResponseWriter, r *http.Request) {
	list := g.challenges[r.Header["Sec-Fetch-Mode"] != nil]
	for _, text := range list {
		if strings.HasPrefix(text, bearer) && scheme(r) == bearer {
			text += `, error="invalid_token"` // RFC 6750, section 3.1
		}
		w.Header().Add(challengeHeader, text)
	}
}
