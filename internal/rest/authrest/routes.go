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
	Service   farm.Service
	Keys      *auth.Keys // nil: no API keys (SVC_ENABLE_API_KEYS)
	Tap       *auth.TAP  // handshake of API keys
	Grants    auth.GrantStore
	Resources bool               // rights on single resources (SVC_ENABLE_RESOURCE_MANAGEMENT)
	Logins    *auth.LoginCookies // nil: no browser login
	Root      *auth.RootToken    // login with the root token
	Provider  *oidc.Provider     // login at the identity provider
	Guesses   *auth.GuessLimiter // of the guard, for the root token; nil: only of these routes
	// Fresh returns once this replica knows all changes that other replicas acknowledged before the call; nil:
	// there are no other replicas.
	Fresh   func(ctx context.Context) error
	Proxied bool // a reverse proxy is in front: its header tells whether browsers come by https
	Show    Show // sends the login page; nil: the default page
}

type server struct {
	o Options

	looks chan struct{} // limits the requests that wait for other replicas with an unknown key
}

// mostLooks bounds them: any client can name unknown keys.
const mostLooks = 4

// Routes returns the table of routes.
func Routes(o Options) []rest.Route {
	if o.Guesses == nil {
		o.Guesses = &auth.GuessLimiter{}
	}
	if o.Show == nil {
		o.Show = show
	}
	s := &server{o: o, looks: make(chan struct{}, mostLooks)}
	routes := []rest.Route{
		{Pattern: "GET /config/v1/auth", Permission: rest.Open, Do: s.config},
	}
	if o.Keys != nil {
		routes = slices.Concat(routes, s.tapRoutes(), s.keyRoutes())
	}
	if o.Grants != nil {
		routes = append(routes, s.permissionRoutes()...)
	}
	if o.Logins != nil {
		routes = append(routes, s.loginRoutes()...)
	}
	return routes
}

// upToDate makes routes wait for changes that any replica has acknowledged.
func (s *server) upToDate(routes []rest.Route) []rest.Route {
	if s.o.Fresh == nil {
		return routes
	}
	for i, route := range routes {
		routes[i].Do = func(r *rest.Request) (any, error) {
			if err := s.o.Fresh(r.Context()); err != nil {
				return nil, farm.Unavailable(err, "Reading the changes of other replicas failed; try again")
			}
			return route.Do(r)
		}
	}
	return routes
}

// learn waits for changes that other replicas have acknowledged if a key is unknown here: one of them may have
// just created it. Few requests wait at a time, the others continue.
func (s *server) learn(ctx context.Context, id string) {
	if _, err := s.o.Keys.Get(id); err == nil || s.o.Fresh == nil {
		return
	}
	select {
	case s.looks <- struct{}{}:
		defer func() { <-s.looks }()
		_ = s.o.Fresh(ctx) // without an answer the key stays unknown
	default:
	}
}
