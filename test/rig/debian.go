package rig

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// DebianTree makes a minimal system of Debian in a new directory, copied from the builder's cache. The first one is
// made by debootstrap in a temporary directory below temp. It needs root.
func DebianTree(ctx context.Context, temp, tree, suite string) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	archive := filepath.Join(cache, "buildyard", "debian-"+suite+".tar")
	if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) {
		made := filepath.Join(temp, "debootstrap")
		if _, err := Output(ctx, temp, "debootstrap", "--variant=minbase", suite, made); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
			return err
		}
		if _, err := Output(ctx, temp, "tar", "-C", made, "-cf", archive+".new", "."); err != nil {
			return err
		}
		if err := errors.Join(os.Rename(archive+".new", archive), os.RemoveAll(made)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	_, err = Output(ctx, temp, "tar", "-C", tree, "-xf", archive)
	return err
}
