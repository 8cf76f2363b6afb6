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

// Values of Route.Permission in place of a permission of the service, in addition to farm.PermRoot.
const (
	Open        = "-"             // it needs no credential
	Known       = "known"         // any valid credential
	Node        = "node"          // the node API: the handler checks the credential of a node, or the join token
	NodeOrKnown = "node-or-known" // as Node, but an authenticated caller needs neither
)

// Identifier authenticates the caller of a request.
type Identifier interface {
	// Identify returns an error with the code unauthenticated for invalid credentials, and unavailable when
	// they cannot be checked now.
	Identify(r *http.Request) (auth.Identity, error)
	// Revalidate is Identify for a request that is already running. was is the result of Identify.
	Revalidate(r *http.Request, was auth.Identity) (auth.Identity, error)
	// Schemes returns the kinds of credentials that are accepted in the header Authorization.
	Schemes() []string
}

var _ Identifier = (*auth.Authenticator)(nil)

// GuardOptions configures a Guard.
type GuardOptions struct {
	Identifier Identifier
	Authorizer *auth.Authorizer
	Guesses    *auth.GuessLimiter // limits guesses of the root token; guards may share it; nil: a separate one
	Proxied    bool               // a reverse proxy is in front, which names the client's address
	Sites      Sites              // pages that may change something in addition to those of the requested address
	Auditor    Auditor            // receives audit records in addition to the log; nil: none
	Logger     *slog.Logger
}

// Guard authenticates and authorizes every request before its handler. Without a credential, a caller learns of
// no paths and methods but those of Open routes. A nil Guard allows everything.
type Guard struct {
	o          GuardOptions
	challenges map[bool][]string   // for a browser's script or not -> values of WWW-Authenticate
	basic      bool                // Basic credentials are accepted
	noise      auth.FailureLimiter // limits individually audited refusals
	leftOut    atomic.Int64        // refusals since the last audited one that were not audited
}

// NewGuard makes a guard. An invalid host is an error.
func NewGuard(o GuardOptions) (*Guard, error) {
	for _, host := range o.Sites.Hosts {
		if strings.ContainsAny(host, "/@?# ") {
			return nil, fmt.Errorf("invalid host name %q: want a name such as builds.example.com", host)
		}
	}
	if o.Guesses == nil {
		o.Guesses = &auth.GuessLimiter{}
	}
	g := &Guard{o: o, challenges: map[bool][]string{}}
	for _, scheme := range o.Identifier.Schemes() {
		text := scheme + realm
		if scheme == basic {
			g.basic = true
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

// challengeHeader is the header that lists the accepted credentials, each with the realm.
const (
	challengeHeader = "Www-Authenticate"
	realm           = ` realm="buildyard"`
)

// guarded checks a request before its handler runs. A waiting request therefore keeps little memory. A node
// poll, which its handler authenticates, keeps none.
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

// admit returns the state of a request that may reach its handler, or answers it and returns nil.
func (g *Guard) admit(w http.ResponseWriter, r *http.Request, route *Route) (*requestAudit, *http.Request) {
	p := &requestAudit{guard: g, route: route, verb: r.Method, request: w.Header().Get(RequestIDHeader)}
	p.rules, p.Address = g.o.Authorizer.Rules(), addressOf(r, g.o.Proxied)
	p.Via = r.Header.Get(ViaHeader) == string(farm.ServiceController)
	if err := g.authorize(p, r); err != nil {
		g.refuse(w, r, p, err)
		return nil, nil
	}
	return p, r.WithContext(context.WithValue(r.Context(), auditKey{}, p))
}

// authorize authenticates the caller and authorizes the request.
func (g *Guard) authorize(p *requestAudit, r *http.Request) error {
	needs := p.route.Permission
	if needs == Node {
		return nil
	}
	if needs != Open {
		who, err := g.identify(p, r)
		var behind *auth.Identity
		if err == nil && who.Method != auth.ByNode { // a node makes no requests for users
			behind, err = actedFor(r)
		}
		if err == nil {
			p.Identity, p.For = who, behind
		} else if needs != NodeOrKnown || farm.CodeOf(err) == farm.CodeTooMany {
			return err
		} else {
			p.tried = err
		}
	}
	if scheme(r) != bearer { // which a browser never sends automatically
		if err := g.o.Sites.check(r); err != nil {
			return err
		}
	}
	switch needs {
	case Open, Known, NodeOrKnown:
		return nil
	}
	if p.IsNode() && !p.route.Ordered {
		return auth.ForbiddenToNodes(farm.Permission(needs))
	}
	return p.Need(farm.Permission(needs))
}

// identify authenticates the caller. Only comparisons of the root token are limited: other refused credentials
// are signed, and their refusal tells an honest client to start a new session.
func (g *Guard) identify(p *requestAudit, r *http.Request) (auth.Identity, error) {
	if !g.basic || scheme(r) != basic {
		return g.o.Identifier.Identify(r)
	}
	if err := g.o.Guesses.Allow(p.Address); err != nil {
		return auth.Identity{}, err
	}
	who, err := g.o.Identifier.Identify(r)
	if err == nil || p.route.Permission != NodeOrKnown { // there the handler may know the caller
		g.o.Guesses.Note(p.Address, err)
	}
	return who, err
}

// recordAttempt counts Basic credentials that neither the guard nor the handler of a route accepted, for any
// failure of the request: each response could distinguish a right root token from a wrong one.
func (g *Guard) recordAttempt(r *http.Request) {
	p := auditOf(r.Context())
	if p != nil && p.tried != nil && !p.guessed && g.basic && scheme(r) == basic {
		g.o.Guesses.Note(p.Address, p.tried)
	}
}

// Guess runs a comparison of a secret that could be guessed, other than the root token, unless too many
// comparisons from the caller's address have failed. It shares the guard's limit; own is that of a service
// without one.
func Guess(r *http.Request, own *auth.GuessLimiter, compare func() error) error {
	limit, addr := own, ""
	if p := auditOf(r.Context()); p != nil {
		limit, addr, p.guessed = p.guard.o.Guesses, p.Address, true
	} else {
		addr = addressOf(r, false)
	}
	if err := limit.Allow(addr); err != nil {
		return err
	}
	err := compare()
	limit.Note(addr, err)
	return err
}

// scheme returns the kind of credentials of a request.
func scheme(r *http.Request) string {
	text, _, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	for _, known := range []string{basic, bearer} {
		if strings.EqualFold(text, known) {
			return known
		}
	}
	return ""
}

// refuse writes the response to a request that does not reach its handler.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, p *requestAudit, err error) {
	p.fail(err)
	p.ended = true
	if p.code == farm.CodeUnauthenticated {
		g.challenge(w, r)
	}
	answerError(w, p.code, err)
	p.close(r.Context())
}

// challenge sets the headers that list the accepted credentials. Basic is left out for a script in a browser:
// the browser would open its login dialog.
func (g *Guard) challenge(w http.ResponseWriter, r *http.Request) {
	list := g.challenges[r.Header["Sec-Fetch-Mode"] != nil]
	for _, text := range list {
		if strings.HasPrefix(text, bearer) && scheme(r) == bearer {
			text += `, error="invalid_token"` // RFC 6750, section 3.1
		}
		w.Header().Add(challengeHeader, text)
	}
}
