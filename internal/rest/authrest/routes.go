package authrest

import (
	"slices"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/oidc"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// Options say what a service offers. What is nil has no routes.
type Options struct {
	Service   farm.Service
	Keys      *auth.Keys // with user keys (SVC_ENABLE_API_KEYS), and
	Tap       *auth.Tap  // their handshake
	Grants    auth.GrantStore
	Resources bool           // rights on single resources (SVC_ENABLE_RESOURCE_MANAGEMENT)
	Logins    *auth.Logins   // log-in of browsers, with
	Root      *auth.Root     // the root token
	Provider  *oidc.Provider // and at the identity provider
	Failed    *auth.Failures // that of the guard: wrong root tokens; nil: of these routes alone
	Proxied   bool           // a reverse proxy is in front: it says whether browsers come by https
}

type server struct{ o Options }

// Routes gives the table of contents.
func Routes(o Options) []rest.Route {
	if o.Failed == nil {
		o.Failed = &auth.Failures{}
	}
	s := &server{o}
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
