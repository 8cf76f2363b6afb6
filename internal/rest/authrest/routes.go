package authrest

import (
	"context"
	"slices"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/oidc"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// Options configures the routes of a service. A nil field has no routes.
type Options struct {
	Service          farm.Service
	Keys             *auth.APIKeys  // nil: no API keys (SVC_ENABLE_API_KEYS)
	Handshake        *auth.TAP      // handshake of API keys
	Sessions         *auth.Sessions // of API keys: a browser that has one can log in with it
	Grants           auth.GrantStore
	ResourcesManaged bool               // rights on single resources (SVC_ENABLE_RESOURCE_MANAGEMENT)
	LoginCookies     *auth.LoginCookies // nil: no browser login
	RootToken        *auth.RootToken    // login with the root token
	Provider         *oidc.Provider     // login at the identity provider
	GuessLimiter     *auth.GuessLimiter // of the guard, for the root token; nil: only of these routes
	// WaitConsistent returns once this replica knows all changes that other replicas acknowledged before the call; nil:
	// there are no other replicas.
	WaitConsistent func(ctx context.Context) error
	Proxied        bool          // a reverse proxy is in front: its header tells whether browsers come by https
	ShowLogin      ShowLoginPage // sends the login page; nil: the default page
}

type server struct {
	opts Options

	keyLookups chan struct{} // limits the requests that wait for other replicas with an unknown key
}

// mostLooks bounds them: any client can name unknown keys.
const mostLooks = 4

// DiscoveryRoutes returns the routes of a service without authentication: clients discover that there is no login.
func DiscoveryRoutes() []rest.Route { return (&server{}).discoveryRoutes() }

func (s *server) discoveryRoutes() []rest.Route {
	return []rest.Route{{Pattern: "GET /config/v1/auth", Permission: rest.NoCredential, Handle: s.authConfig}}
}

// Routes returns the table of routes.
func Routes(o Options) []rest.Route {
	if o.GuessLimiter == nil {
		o.GuessLimiter = &auth.GuessLimiter{}
	}
	if o.ShowLogin == nil {
		o.ShowLogin = showDefaultPage
	}
	s := &server{opts: o, keyLookups: make(chan struct{}, mostLooks)}
	routes := s.discoveryRoutes()
	if o.Keys != nil {
		routes = slices.Concat(routes, s.tapRoutes(), s.keyRoutes())
	}
	if o.Grants != nil {
		routes = append(routes, s.permissionRoutes()...)
	}
	if o.LoginCookies != nil {
		routes = append(routes, s.loginRoutes()...)
	}
	return routes
}

// waitConsistentFirst makes routes wait for changes that any replica has acknowledged.
func (s *server) waitConsistentFirst(routes []rest.Route) []rest.Route {
	if s.opts.WaitConsistent == nil {
		return routes
	}
	for i, route := range routes {
		routes[i].Handle = func(r *rest.Request) (any, error) {
			if err := s.opts.WaitConsistent(r.Context()); err != nil {
				return nil, farm.Unavailable(err, "Reading the changes of other replicas failed; try again")
			}
			return route.Handle(r)
		}
	}
	return routes
}

// waitForKey waits for changes that other replicas have acknowledged if a key is unknown here: one of them may have
// just created it. Few requests wait at a time, the others continue.
func (s *server) waitForKey(ctx context.Context, id string) {
	if _, err := s.opts.Keys.Get(id); err == nil || s.opts.WaitConsistent == nil {
		return
	}
	select {
	case s.keyLookups <- struct{}{}:
		defer func() { <-s.keyLookups }()
		_ = s.opts.WaitConsistent(ctx) // without an answer the key stays unknown
	default:
	}
}
