package buildyard

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/config"
)

// Names of files in the data directory, besides those of the store.
const (
	initSettingsFile = "buildyard.conf" // settings created by init
	rootTokenFile    = "root-token"
	tlsDir           = "tls"
)

// openDataDir makes the controller's data directory, or checks that only its owner can read it.
// An empty one is made private: nothing in it was readable yet.
func openDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%s: %w", config.DataDir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", config.DataDir, err)
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 && os.Chmod(dir, 0o700) == nil {
		return nil
	}
	return fmt.Errorf("%s=%q: data directory is accessible by other users (%#o); run: chmod 700 %s",
		config.DataDir, dir, info.Mode().Perm(), dir)
}

// addInitSettings adds the settings that init created in the data directory, which apply where the
// configuration file has no value.
func addInitSettings(table config.Table, src config.Sources) (config.Sources, error) {
	if !table.Has(config.DataDir) {
		return src, nil
	}
	v, err := config.Load(table, src)
	if err != nil {
		return src, err
	}
	made, err := config.ReadFile(filepath.Join(v.String(config.DataDir), initSettingsFile), table)
	if errors.Is(err, fs.ErrNotExist) {
		return src, nil
	}
	if err != nil {
		return src, err
	}
	less := maps.Clone(made)
	maps.Copy(less, src.FileDefaults)
	src.FileDefaults = less
	return src, nil
}

// controllerAddress returns the listen address that a controller with a settings file has.
func controllerAddress(settingsFile string) (string, error) {
	src, err := addInitSettings(config.ControllerTable, config.Sources{Env: os.LookupEnv, File: settingsFile})
	if err != nil {
		return "", err
	}
	v, err := config.Load(config.ControllerTable, src)
	if err != nil {
		return "", err
	}
	return v.String(config.ListenAddr), nil
}

// tokenFile keeps the join token for the operator on the controller's machine.
const tokenFile = "join-token"

// writeToken replaces the file with the join token; "" removes it.
func writeToken(dir, token string) error {
	path := filepath.Join(dir, tokenFile)
	if token == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the join token that is no longer valid: %w", err)
		}
		return nil
	}
	if old, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(old)) == token {
		return nil
	}
	if err := datadir.WriteFile(path, []byte(token+"\n")); err != nil {
		return fmt.Errorf("write the join token: %w", err)
	}
	return nil
}
