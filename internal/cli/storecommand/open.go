package storecommand

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// OpenDirectory opens the embedded store in the data directory of a stopped controller.
func OpenDirectory(ctx context.Context, dataDir string) (*etcd.Backend, error) {
	dir := EmbeddedDir(dataDir)
	if _, err := os.Stat(filepath.Join(dir, etcd.MemberSubdir)); err != nil {
		return nil, fmt.Errorf("%s is not the data directory of a controller with an embedded store: %w", dataDir, err)
	}
	if err := checkOwner(dataDir, "buildyard store backup"); err != nil {
		return nil, err
	}
	return etcd.StartEmbedded(ctx, etcd.EmbeddedOptions{Dir: dir})
}

// OpenConfigured opens the store that the settings file of a controller names. The environment counts as
// for the controller.
func OpenConfigured(ctx context.Context, settingsFile string) (*etcd.Backend, error) {
	v, err := config.Load(config.ControllerTable, config.Sources{Env: os.LookupEnv, File: settingsFile})
	if err != nil {
		return nil, err
	}
	opts, err := ClusterOptions(v, nil)
	if err != nil {
		return nil, err
	}
	if len(opts.Endpoints) == 0 {
		return OpenDirectory(ctx, v.String(config.DataDir))
	}
	opts.TempDir = "" // the data directory may belong to another user
	return etcd.ConnectExternal(ctx, opts)
}
