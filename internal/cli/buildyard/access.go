package buildyard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/oidc"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/periodic"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/authrest"
)

// access authenticates and authorizes the callers of one service. A nil access lets every caller do
// everything.
type access struct {
	guard             *rest.Guard
	routes            []rest.Route
	authenticator     *auth.Authenticator
	authorizer        *auth.Authorizer
	guessLimiter      auth.GuessLimiter // of the root token, at any of the interfaces
	provider          *oidc.Provider    // nil: none
	opts              accessOptions
	listKeys          func() []farm.APIKey // nil: there are no API keys
	tier              farm.Tier            // that the authorizer uses
	enforcementStored bool                 // the store records whether permissions are enforced
}

// accessOptions are the options of openAccess.
type accessOptions struct {
	Service            farm.Service
	Settings           *config.Values
	EnforcePermissions bool // permissions are enforced
	Tier               func() farm.Tier
	Stores             accessStores
	PortTLS            *portTLS
	RegistryTokens     *auth.RegistryTokens // that authenticate nodes; nil: none
	// waits until the writes of other replicas are visible; nil: no other replicas
	WaitConsistent func(ctx context.Context) error
	ShowLogin      authrest.ShowLoginPage // the login page; nil: the default
	Auditor        rest.Auditor           // nil: audited actions go only to the log
	Jobs           []periodic.Job         // additional background jobs of access
	Logger         *slog.Logger
}

// accessStores are the permanent stores of authentication.
type accessStores struct {
	Keys   auth.KeyStore
	Nonces auth.NonceStore
	Grants auth.GrantStore
	Signer *auth.Signer
}

// authOnlySettings are the settings that have no effect without authentication. A service in which one of
// them is set must not start without authentication.
var authOnlySettings = []string{config.EnableAPIKeys, config.ResourceManagement}

// checkAccess rejects inconsistent settings of authentication. authorizations are the settings that
// enforce permissions.
func checkAccess(v *config.Values, authorizations ...string) error {
	on := v.Bool(config.EnableAuth)
	asked := func(keys []string) string {
		for _, key := range keys {
			if v.Bool(key) {
				return key
			}
		}
		return ""
	}
	permissions := asked(authorizations)
	token, authorities, provider := v.String(config.AuthRootToken), v.String(config.CACert),
		v.String(config.OIDCProviderURL)
	for _, rule := range []struct {
		broken bool
		says   string
	}{
		{!on && asked(authOnlySettings) != "", asked(authOnlySettings) + " requires " + config.EnableAuth + "=true"},
		{!on && permissions != "", permissions + " requires " + config.EnableAuth + "=true"},
		{!on && authorities != "", config.CACert + " requires " + config.EnableAuth + "=true"},
		{!on && provider != "", config.OIDCProviderURL + " requires " + config.EnableAuth + "=true"},
		{on && token == "" && authorities == "" &&
			provider == "", config.EnableAuth + " is on without a credential: set " + config.AuthRootToken + " (or " +
			config.AuthRootToken + "_FILE)"},
		{permissions != "" && token == "", permissions + " requires " + config.AuthRootToken +
			": only the root user can grant permissions"},
		{v.Bool(config.EnableAPIKeys) && token == "", config.EnableAPIKeys + " requires " + config.AuthRootToken +
			": only the root user creates keys"},
		{v.Bool(config.ResourceManagement) &&
			permissions == "", config.ResourceManagement + " requires authorization: " + authorizations[0] + "=true"},
		{(provider == "") != (v.String(config.OIDCClientID) == ""), config.OIDCProviderURL + " and " +
			config.OIDCClientID + " must be set together"},
		{v.List(config.CRL) != nil && authorities == "", config.CRL + " requires " + config.CACert},
		{authorities != "" && !v.Bool(config.UseHTTPS) && !v.Bool(config.IngressNginx), config.CACert + " requires " +
			config.UseHTTPS + "=true: client certificates require TLS"},
	} {
		if rule.broken {
			return errors.New(rule.says)
		}
	}
	if token != "" {
		if _, err := auth.NewRootToken(token); err != nil {
			return fmt.Errorf("%s: %w", config.AuthRootToken, err)
		}
	}
	return nil
}

// openAccess creates the authenticator, the authorizer and the routes of a service.
func openAccess(o accessOptions) (*access, error) {
	a := &access{opts: o, tier: o.Tier(), authenticator: &auth.Authenticator{RegistryTokens: o.RegistryTokens}}
	v := o.Settings
	if token := v.String(config.AuthRootToken); token != "" {
		root, err := auth.NewRootToken(token)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", config.AuthRootToken, err)
		}
		a.authenticator.Root = root
	}
	if err := a.openProvider(); err != nil {
		return nil, err
	}
	if o.PortTLS.clients != nil {
		a.authenticator.Certificate = o.PortTLS.clients.Identity
	}
	var keys *auth.APIKeys
	if v.Bool(config.EnableAPIKeys) {
		keys = auth.NewAPIKeys(o.Stores.Keys)
	}
	a.authenticator.Logins = auth.NewLoginCookies(o.Stores.Signer, a.authenticator.Root,
		v.String(config.OIDCProviderURL), keys)
	a.authorizer = auth.NewAuthorizer(auth.Policy{
		Service: o.Service, Tier: a.tier, Authorization: o.EnforcePermissions,
		Resources: v.Bool(config.ResourceManagement),
	}, o.Stores.Grants)
	routes := authrest.Options{
		Service: o.Service, Grants: o.Stores.Grants, ResourcesManaged: v.Bool(config.ResourceManagement),
		LoginCookies: a.authenticator.Logins,
		RootToken:    a.authenticator.Root,
		Provider:     a.provider, GuessLimiter: &a.guessLimiter, Proxied: v.Bool(config.IngressNginx),
		WaitConsistent: o.WaitConsistent, ShowLogin: o.ShowLogin,
	}
	if keys != nil {
		routes.Keys, a.listKeys = keys, keys.List
		a.authenticator.Sessions = auth.NewSessions(keys, o.Stores.Signer, v.Duration(config.SessionTTL))
		routes.Sessions = a.authenticator.Sessions
		routes.Handshake = auth.NewTAP(a.authenticator.Sessions, o.Stores.Nonces)
	}
	a.routes = authrest.Routes(routes)
	var err error
	a.guard, err = a.newGuard(a.authenticator)
	return a, err
}

// pruneGrantsInterval is the interval of the search for grants on deleted templates that the deletion
// could not remove.
const pruneGrantsInterval = time.Minute

// pruneGrants removes the grants on deleted templates, and returns the job that retries failed removals.
func pruneGrants(core *registry.Registry, grants auth.GrantStore) periodic.Job {
	core.SetGrantRemover(func(ctx context.Context, ids []string) error {
		if _, changed := grants.Grants().WithoutResources(farm.ResourceTemplate, ids); !changed {
			return nil
		}
		return grants.Change(ctx, func(g auth.Grants) (auth.Grants, error) {
			g, _ = g.WithoutResources(farm.ResourceTemplate, ids)
			return g, nil
		})
	})
	return periodic.Job{What: "grants on deleted templates", Every: pruneGrantsInterval, Do: core.RemoveDeletedGrants}
}

// openProvider opens the identity provider that the settings name.
func (a *access) openProvider() (err error) {
	v := a.opts.Settings
	if v.String(config.OIDCProviderURL) == "" {
		return nil
	}
	if a.provider, err = oidc.New(oidc.Options{
		ClientID: v.String(config.OIDCClientID), ClientSecret: auth.NewSecret(v.String(config.OIDCClientSecret)),
		ProviderURL: v.String(config.OIDCProviderURL),
		DisplayName: v.String(config.OIDCDisplayName), UsernameClaim: v.String(config.OIDCUsernameClaim),
		GroupsClaim: v.String(config.OIDCGroupsClaim),
		Scopes:      v.List(config.OIDCScopes), Proxied: v.Bool(config.IngressNginx), Signer: a.opts.Stores.Signer,
		ShowFailure: a.opts.ShowLogin.Fail, Logger: a.opts.Logger,
	}); err != nil {
		return fmt.Errorf("%s: %w", config.OIDCProviderURL, err)
	}
	a.authenticator.JWT = a.provider.Verify
	return nil
}

// newGuard returns a guard of this service with a way to identify callers.
func (a *access) newGuard(who rest.Identifier) (*rest.Guard, error) {
	v := a.opts.Settings
	return rest.NewGuard(rest.GuardOptions{
		Identifier: who, Authorizer: a.authorizer, GuessLimiter: &a.guessLimiter, Proxied: v.Bool(config.IngressNginx),
		Sites:   a.trustedSites(),
		Auditor: a.opts.Auditor, Logger: a.opts.Logger,
	})
}

// trustedSites returns the foreign web origins that may use a service.
func (a *access) trustedSites() rest.Sites {
	v := a.opts.Settings
	return rest.NewSites(v.List(config.AllowedHosts), a.opts.Service == farm.ServiceController &&
		v.Bool(config.AllowCORS))
}

// runJobs runs the background jobs of authentication and authorization until ctx ends.
func (a *access) runJobs(ctx context.Context) {
	if a == nil {
		return
	}
	var work sync.WaitGroup
	work.Go(func() { periodic.Run(ctx, a.backgroundJobs(), a.opts.Logger) })
	if a.provider != nil {
		_ = a.provider.Prefetch(ctx) // it logs the result
	}
	work.Wait()
}

// Guard returns the guard; nil without authentication.
func (a *access) Guard() *rest.Guard {
	if a == nil {
		return nil
	}
	return a.guard
}

// Routes returns the routes of authentication; without it, the one by which clients find that out.
func (a *access) Routes() []rest.Route {
	if a == nil {
		return authrest.DiscoveryRoutes()
	}
	return a.routes
}

// ListKeys returns the function that lists the API keys; nil when there are none.
func (a *access) ListKeys() func() []farm.APIKey {
	if a == nil {
		return nil
	}
	return a.listKeys
}

// Rules returns the current rules; nil without authentication.
func (a *access) Rules() *auth.Rules {
	if a == nil {
		return nil
	}
	return a.authorizer.Rules()
}
