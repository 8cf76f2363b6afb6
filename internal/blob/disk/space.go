package disk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileSystemSpace returns the free and total space of the file system: free is what an ordinary user may still write.
func fileSystemSpace(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("get disk space of %s: %w", dir, err)
	}
	unit := int64(st.Bsize)
	return int64(st.Bavail) * unit, int64(st.Blocks) * unit, nil
}
