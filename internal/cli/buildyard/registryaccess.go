package buildyard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authfile"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/periodic"
	"github.com/buildyard/buildyard/internal/rest"
)

// registryStores are the open authentication stores of a standalone registry.
type registryStores struct {
	authDir *authfile.Dir
	nonces  *authfile.Nonces
	keys    *auth.APIKeys
	signer  *auth.Signer
	license *license.File
}

// accessDirIn is the directory of keys and permissions in the storage of a standalone registry. The lock
// of the storage excludes other processes.
func accessDirIn(base string) string { return filepath.Join(base, "auth") }

// openOwnAccess creates the access of a registry that runs alone.
func (s *RegistryService) openOwnAccess() error {
	if !s.settings.Bool(config.EnableAuth) {
		return nil
	}
	k := &registryStores{}
	s.ownStores = k
	var err error
	if k.license, err = license.Open(license.Options{
		Product: license.Controller, Path: s.settings.String(config.LicenseFile),
		AuthorityFile: s.settings.String(config.LicenseAuthority), Logger: s.log,
	}); err != nil {
		return err
	}
	stores, err := k.open(accessDirIn(s.storageDir))
	if err != nil {
		return fmt.Errorf("open API keys and permissions: %w", err)
	}
	var passes *auth.RegistryTokens
	if token := s.settings.String(config.AuthRootToken); token != "" { // a controller with the same token issues them
		passes = auth.NewDerivedRegistryTokens(auth.NewSecret(token), k.keys)
	}
	if err = s.openAuditTrail(); err != nil {
		return err
	}
	s.access, err = openAccess(accessOptions{
		Service: farm.ServiceRegistry, Settings: s.settings, EnforcePermissions: s.settings.Bool(config.Authorization),
		Tier: k.license.Tier,
		Jobs: []periodic.Job{pruneGrants(s.registry, stores.Grants)}, Stores: stores, PortTLS: s.registryTLS,
		RegistryTokens: passes,
		Auditor:        auditor(s.auditTrail, farm.ServiceRegistry), Logger: s.log,
	})
	return err
}

func (k *registryStores) open(dir string) (stores accessStores, err error) {
	if k.authDir, err = authfile.OpenDir(dir); err != nil {
		return stores, err
	}
	ring, err := k.authDir.Ring()
	if err != nil {
		return stores, err
	}
	keys, err := k.authDir.Keys()
	if err != nil {
		return stores, err
	}
	grants, err := k.authDir.Grants(farm.ServiceRegistry)
	if err != nil {
		return stores, err
	}
	if k.nonces, err = k.authDir.OpenNonces(); err != nil {
		return stores, err
	}
	k.keys, k.signer = auth.NewAPIKeys(keys), auth.NewSigner(ring)
	return accessStores{Keys: keys, Nonces: k.nonces, Grants: grants, Signer: k.signer}, nil
}

func (k *registryStores) close() error {
	if k == nil || k.authDir == nil {
		return nil
	}
	var err error
	if k.nonces != nil {
		err = k.nonces.Close()
	}
	return errors.Join(err, k.authDir.Close())
}

// listenLocally binds the port for programs of this machine. Without authentication that port
// offers nothing more than the main port, and is omitted when another process uses it.
func (s *RegistryService) listenLocally(ctx context.Context) (*listener, error) {
	if s.settings.String(config.LocalListenAddr) == config.NoAddr {
		return nil, nil // disabled
	}
	host, port, err := net.SplitHostPort(s.settings.String(config.LocalListenAddr))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.LocalListenAddr, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := listen(ctx, "the registry's port for programs of this machine ("+config.LocalListenAddr+")",
		net.JoinHostPort(host, port), s.log)
	if err != nil && !s.settings.Bool(config.EnableAuth) &&
		s.settings.Origin(config.LocalListenAddr) == config.FromDefault {
		s.log.WarnContext(ctx, "loopback port in use; continuing without it", "error", err.Error())
		return nil, nil // none
	}
	return l, err
}

// localURL returns the URL for programs of this machine without credentials; "" without that port.
func (s *RegistryService) localURL() string {
	if s.localListener == nil {
		return ""
	}
	return s.localListener.url()
}

// maintenanceURL returns the address at which commands on this machine that manage the storage call the
// registry.
func (s *RegistryService) maintenanceURL() string {
	if s.localListener != nil {
		return s.localListener.url()
	}
	return s.URL()
}

// localGuard returns the guard of the callers of that port.
func (s *RegistryService) localGuard() (*rest.Guard, error) {
	if s.access == nil {
		return nil, nil // every caller is allowed
	}
	return s.access.newGuard(rest.Loopback{})
}

// serveLocally serves that port until ctx ends.
func (s *RegistryService) serveLocally(ctx context.Context, handler http.Handler) error {
	if s.localListener == nil {
		<-ctx.Done()
		return nil
	}
	return s.localListener.serve(ctx, handler, registryShutdownTimeout)
}

// servePipe serves the controller of this process until ctx ends.
func (s *RegistryService) servePipe(ctx context.Context, handler http.Handler) error {
	if s.pipe == nil {
		<-ctx.Done()
		return nil
	}
	return newListener(s.pipe, s.log).serve(ctx, handler, registryShutdownTimeout)
}
