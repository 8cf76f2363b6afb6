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
	err = errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, bytes), os.Mkdir(mountPoint, 0o755))
	if err != nil {
		return "", "", err
	}
	if _, err := Output(ctx, "", "mkfs.xfs", "-q", "-m", "reflink=1", image); err != nil {
		return "", "", fmt.Errorf("no file system with clones can be made: %w; install xfsprogs", err)
	}
	return image, mountPoint, nil
}
