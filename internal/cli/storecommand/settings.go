// Package storecommand has the commands for whole stores: check, migrate, backup and restore, and opens
// the store that the settings of a controller name.
//
// It is not the work itself, which is in package storeadmin.
//
// Invariant: no password of an etcd user is in an argument list, an output or an error.
package storecommand

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/store/etcd"
	"github.com/buildyard/buildyard/internal/store/etcd/clienttls"
	"github.com/buildyard/buildyard/internal/store/storeadmin"
)

// storeSubdir is the directory of the embedded store in the data directory of a controller.
const storeSubdir = "store"

// EmbeddedDir returns the directory of the embedded store in a controller's data directory.
func EmbeddedDir(dataDir string) string { return filepath.Join(dataDir, storeSubdir) }

// ClusterOptions returns how the settings of a controller reach its etcd cluster. Without endpoints, no
// other setting of the cluster may be given.
func ClusterOptions(v *config.Values, log *slog.Logger) (etcd.ExternalOptions, error) {
	o := etcd.ExternalOptions{
		Endpoints: v.List(config.EtcdEndpoints), TempDir: v.String(config.DataDir), Logger: log,
		Username: v.String(config.EtcdUsername), Password: v.String(config.EtcdPassword),
	}
	files := clienttls.Files{
		CA: v.String(config.EtcdCACert), Cert: v.String(config.EtcdCert), Key: v.String(config.EtcdKey),
	}
	if len(o.Endpoints) == 0 {
		if files != (clienttls.Files{}) || o.Username != "" || o.Password != "" {
			return o, fmt.Errorf("settings of etcd are given, but %s is not set", config.EtcdEndpoints)
		}
		return o, nil
	}
	if (o.Username == "") != (o.Password == "") {
		return o, fmt.Errorf("%s and %s are needed together: set both or none", config.EtcdUsername,
			config.EtcdPassword)
	}
	if err := checkEndpoints(o.Endpoints); err != nil {
		return o, err
	}
	var err error
	if o.TLS, err = files.TLS(o.Endpoints); err != nil {
		return o, err
	}
	if o.TLS == nil && o.Password != "" && log != nil {
		log.Warn("the password for etcd is sent over a connection that is not encrypted", "setting",
			config.EtcdPassword)
	}
	return o, nil
}

// checkEndpoints refuses what etcd's client would ignore.
func checkEndpoints(endpoints []string) error {
	for _, endpoint := range endpoints {
		at, err := url.Parse(endpoint)
		switch {
		case err != nil:
			return errors.New("an etcd endpoint is not a URL")
		case at.User != nil:
			return fmt.Errorf("etcd endpoint %s has a user name: set %s and %s instead", at.Redacted(),
				config.EtcdUsername, config.EtcdPassword)
		case at.Path != "" && at.Path != "/":
			return fmt.Errorf("etcd endpoint %s has a path: want scheme, host and port only", at.Redacted())
		}
	}
	return nil
}

// clusterName names a cluster in texts and in the record of a transfer.
func clusterName(o etcd.ExternalOptions) string {
	return storeadmin.ClusterNamePrefix + strings.Join(o.Endpoints, storeadmin.EndpointSeparator)
}
