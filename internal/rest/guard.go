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
	NoCredential  = "-"             // it needs no credential
	AnyCredential = "known"         // any valid credential
	NodeOnly      = "node"          // the node API: the handler checks the credential of a node, or the join token
	NodeOrCaller  = "node-or-known" // as Node, but an authenticated caller needs neither
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
	Identifier   Identifier
	Authorizer   *auth.Authorizer
	GuessLimiter *auth.GuessLimiter // limits guesses of the root token; guards may share it; nil: a separate one
	Proxied      bool               // a reverse proxy is in front, which names the client's address
	Sites        Sites              // pages that may change something in addition to those of the requested address
	Auditor      Auditor            // receives audit records in addition to the log; nil: none
	Logger       *slog.Logger
}

// Guard authenticates and authorizes every request before its handler. Without a credential, a caller learns of
// no paths and methods but those of Open routes. A nil Guard allows everything.
type Guard struct {
	opts            GuardOptions
	challenges      map[bool][]string   // for a browser's script or not -> values of WWW-Authenticate
	basicAccepted   bool                // Basic credentials are accepted
	refusalLimiter  auth.FailureLimiter // limits individually audited refusals
	leftOutRefusals atomic.Int64        // refusals since the last audited one that were not audited
}

// NewGuard makes a guard. An invalid host is an error.
func NewGuard(o GuardOptions) (*Guard, error) {
	for _, host := range o.Sites.Hosts {
		if strings.ContainsAny(host, "/@?# ") {
			return nil, fmt.Errorf("invalid host name %q: want a name such as builds.example.com", host)
		}
	}
	if o.GuessLimiter == nil {
		o.GuessLimiter = &auth.GuessLimiter{}
	}
	g := &Guard{opts: o, challenges: map[bool][]string{}}
	for _, scheme := range o.Identifier.Schemes() {
		text := scheme + realm
		if scheme == basic {
			g.basicAccepted = true
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

// guardHandler checks a request before its handler runs. A waiting request therefore keeps little memory. A node
// poll, which its handler authenticates, keeps none.
func (g *Guard) guardHandler(route Route, next http.Handler) http.Handler {
	if g == nil || route.Permission == NodeOnly && route.Frequent {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, admitted := g.admitRequest(w, r, &route)
		if p == nil {
			return
		}
		defer p.finish(r.Context())
		if route.Streams {
			within, leave := g.revalidatedRequest(admitted, p)
			defer leave()
			admitted = within
		}
		next.ServeHTTP(w, admitted)
		p.handlerReturned = true
	})
}

// admitRequest returns the state of a request that may reach its handler, or answers it and returns nil.
func (g *Guard) admitRequest(w http.ResponseWriter, r *http.Request, route *Route) (*requestAudit, *http.Request) {
	p := &requestAudit{guard: g, route: route, httpMethod: r.Method, requestID: w.Header().Get(RequestIDHeader)}
	p.rules, p.Address = g.opts.Authorizer.Rules(), clientAddress(r, g.opts.Proxied)
	p.ByController = r.Header.Get(ViaHeader) == string(farm.ServiceController)
	if err := g.authorizeRequest(p, r); err != nil {
		g.writeRefusal(w, r, p, err)
		return nil, nil
	}
	return p, r.WithContext(context.WithValue(r.Context(), auditKey{}, p))
}

// authorizeRequest authenticates the caller and authorizes the request.
func (g *Guard) authorizeRequest(p *requestAudit, r *http.Request) error {
	needs := p.route.Permission
	if needs == NodeOnly {
		return nil
	}
	if needs != NoCredential {
		who, err := g.identifyCaller(p, r)
		var behind *auth.Identity
		if err == nil && who.Method != auth.ByNode { // a node makes no requests for users
			behind, err = forwardedUser(r)
		}
		if err == nil {
			p.Identity, p.ActsFor = who, behind
		} else if needs != NodeOrCaller || farm.CodeOf(err) == farm.CodeTooMany {
			return err
		} else {
			p.credentialErr = err
		}
	}
	if authScheme(r) != bearer { // which a browser never sends automatically
		if err := g.opts.Sites.checkOrigin(r); err != nil {
			return err
		}
	}
	switch needs {
	case NoCredential, AnyCredential, NodeOrCaller:
		return nil
	}
	if p.IsNode() && !p.route.AllowsRegistryToken {
		return auth.ForbiddenToNodes(farm.Permission(needs))
	}
	return p.RequirePermission(farm.Permission(needs))
}

// identifyCaller authenticates the caller. Only comparisons of the root token are limited: other refused credentials
// are signed, and their refusal tells an honest client to start a new session.
func (g *Guard) identifyCaller(p *requestAudit, r *http.Request) (auth.Identity, error) {
	if !g.basicAccepted || authScheme(r) != basic {
		return g.opts.Identifier.Identify(r)
	}
	if err := g.opts.GuessLimiter.Allow(p.Address); err != nil {
		return auth.Identity{}, err
	}
	who, err := g.opts.Identifier.Identify(r)
	if err == nil || p.route.Permission != NodeOrCaller { // there the handler may know the caller
		g.opts.GuessLimiter.RecordResult(p.Address, err)
	}
	return who, err
}

// recordAttempt counts Basic credentials that neither the guard nor the handler of a route accepted, for any
// failure of the request: each response could distinguish a right root token from a wrong one.
func (g *Guard) recordAttempt(r *http.Request) {
	p := auditOf(r.Context())
	if p != nil && p.credentialErr != nil && !p.countedAsGuess && g.basicAccepted && authScheme(r) == basic {
		g.opts.GuessLimiter.RecordResult(p.Address, p.credentialErr)
	}
}

// LimitedCompare runs a comparison of a secret that could be guessed, other than the root token, unless too many
// comparisons from the caller's address have failed. It shares the guard's limit; own is that of a service
// without one.
func LimitedCompare(r *http.Request, own *auth.GuessLimiter, compare func() error) error {
	limit, addr := own, ""
	if p := auditOf(r.Context()); p != nil {
		limit, addr, p.countedAsGuess = p.guard.opts.GuessLimiter, p.Address, true
	} else {
		addr = clientAddress(r, false)
	}
	if err := limit.Allow(addr); err != nil {
		return err
	}
	err := compare()
	limit.RecordResult(addr, err)
	return err
}

// authScheme returns the kind of credentials of a request.
func authScheme(r *http.Request) string {
	text, _, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	for _, known := range []string{basic, bearer} {
		if strings.EqualFold(text, known) {
			return known
		}
	}
	return ""
}

// writeRefusal writes the response to a request that does not reach its handler.
func (g *Guard) writeRefusal(w http.ResponseWriter, r *http.Request, p *requestAudit, err error) {
	p.recordFailure(err)
	p.handlerReturned = true
	if p.code == farm.CodeUnauthenticated {
		g.setChallenge(w, r)
	}
	writeError(w, p.code, err)
	p.finish(r.Context())
}

// setChallenge sets the headers that list the accepted credentials. Basic is left out for a script in a browser:
// the browser would open its login dialog.
func (g *Guard) setChallenge(w http.ResponseWriter, r *http.Request) {
	list := g.challenges[r.Header["Sec-Fetch-Mode"] != nil]
	for _, text := range list {
		if strings.HasPrefix(text, bearer) && authScheme(r) == bearer {
			text += `, error="invalid_token"` // RFC 6750, section 3.1
		}
		w.Header().Add(challengeHeader, text)
	}
}
