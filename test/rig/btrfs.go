package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// FormatBtrfs makes a Btrfs file system in a sparse file.
func FormatBtrfs(ctx context.Context, image string, bytes int64, options ...string) error {
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, bytes)); err != nil {
		return err
	}
	if _, err := Output(ctx, "", "mkfs.btrfs", append(append([]string{"-q"}, options...), image)...); err != nil {
		return fmt.Errorf("no Btrfs file system can be made: %w; install btrfs-progs", err)
	}
	return nil
}
