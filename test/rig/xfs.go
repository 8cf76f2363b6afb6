package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// MakeXFS makes an XFS file system that can clone files, as APFS does, in a sparse file of a directory, and an empty
// directory to mount it on.
func MakeXFS(ctx context.Context, dir string, bytes int64) (image, mountPoint string, err error) {
	image, mountPoint = filepath.Join(dir, "xfs.img"), filepath.Join(dir, "data")
	if err := os.Mkdir(mountPoint, 0o755); err != nil {
		return "", "", err
	}
	return image, mountPoint, FormatXFS(ctx, image, bytes, "-m", "reflink=1")
}

// FormatXFS makes an XFS file system in a sparse file.
func FormatXFS(ctx context.Context, image string, bytes int64, options ...string) error {
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, bytes)); err != nil {
		return err
	}
	if _, err := Output(ctx, "", "mkfs.xfs", append(append([]string{"-q"}, options...), image)...); err != nil {
		return fmt.Errorf("no XFS file system can be made: %w; install xfsprogs", err)
	}
	return nil
}
