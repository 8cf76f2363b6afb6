package crash

import (
	"fmt"
	"os"
	"syscall"

	"github.com/buildyard/buildyard/test/rig"
)

// smallDisk makes a directory on a separate file system, of so many MiB. Where that is not
// possible, dir is an ordinary one and the error has the reason. unmount is never nil.
func smallDisk(dir string, mib int) (_ string, unmount func() error, err error) {
	unmount = func() error { return os.RemoveAll(dir) }
	if err := rig.MakeDir(dir); err != nil {
		return dir, unmount, err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		return dir, unmount, fmt.Errorf("a small file system cannot be mounted here: %w", err)
	}
	return dir, func() error {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
		return os.RemoveAll(dir)
	}, nil
}
