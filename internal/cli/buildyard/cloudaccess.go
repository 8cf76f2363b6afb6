package buildyard

import (
	"context"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authstore"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/periodic"
)

// openAccess creates the access of the controller, and of a registry in the same process: they
// share API keys, used nonces and the session signing keys.
func (s *ControllerService) openAccess(ctx context.Context, records *authstore.Tables) error {
	s.registryTokens = s.remoteRegistryTokens()
	if !s.settings.Bool(config.EnableAuth) {
		return nil
	}
	stores, err := authstore.Open(ctx, s.store, records, s.log)
	if err != nil {
		return err
	}
	s.openAuditTrail()
	keys := auth.NewAPIKeys(stores.Keys())
	s.leaderJobs = stores.Jobs(keys)
	o := accessOptions{Settings: s.settings, Tier: s.license.Tier, PortTLS: s.apiTLS}
	if len(s.settings.List(config.EtcdEndpoints)) > 0 {
		o.WaitConsistent = stores.WaitConsistent
	}
	service := func(name farm.Service) accessStores {
		return accessStores{
			Keys: stores.Keys(), Nonces: stores.Nonces(), Grants: stores.Grants(name),
			Signer: stores.Signer(),
		}
	}
	o.Service, o.EnforcePermissions, o.Logger = farm.ServiceController, s.settings.Bool(config.ControllerAuthorization),
		s.log
	o.Stores, o.Auditor = service(o.Service), auditor(s.auditTrail, o.Service)
	o.ShowLogin = showPortalLogin
	if s.access, err = openAccess(o); err != nil || s.registry == nil { //nolint:contextcheck // requests have their own contexts
		return err
	}
	s.registryTokens = auth.NewRegistryTokens(stores.Signer(), keys)
	o.ShowLogin = nil // the registry has no portal
	o.RegistryTokens = s.registryTokens
	o.Service, o.EnforcePermissions, o.Logger = farm.ServiceRegistry, s.settings.Bool(config.RegistryAuthorization),
		s.registry.log
	o.Stores, o.Auditor = service(o.Service), auditor(s.auditTrail, o.Service)
	o.Jobs = []periodic.Job{pruneGrants(s.registry.registry, o.Stores.Grants)}
	s.registry.access, err = openAccess(o) //nolint:contextcheck // as above
	return err
}

// remoteRegistryTokens returns the issuer of registry tokens for a remote registry with the same root token; nil
// where the controller authenticates with an API key, since nodes then need one as well.
func (s *ControllerService) remoteRegistryTokens() *auth.RegistryTokens {
	token := s.settings.String(config.AuthRootToken)
	if s.registry != nil || token == "" || s.settings.String(config.APIKeyID) != "" {
		return nil
	}
	return auth.NewDerivedRegistryTokens(auth.NewSecret(token), nil)
}
