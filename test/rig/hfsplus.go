package rig

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus/hfsplustest"
)

// MakeHFSPlus makes a volume in a sparse file, of at least v.Size bytes.
func MakeHFSPlus(image string, v hfsplustest.Volume) error {
	to, err := os.Create(image)
	if err != nil {
		return err
	}
	_, err = hfsplustest.Write(to, v)
	return errors.Join(err, to.Close())
}

// FillHFSPlus copies a directory to the volume in an image, and runs commands in its root: a guest's kernel does, since
// that of this machine may not have the driver. It runs in the root of the repository.
func FillHFSPlus(ctx context.Context, image, dir, commands string) error {
	if _, err := Output(ctx, ".", "test/rig/hfsplus.sh", image, dir, commands); err != nil {
		return fmt.Errorf("no HFS+ file system can be filled: %w", err)
	}
	return nil
}
