package qemu

import (
	"os"
	"path/filepath"
	"strconv"
)

// sockPath returns a short name for dir/name: socket addresses are limited to 108 bytes,
// directories are not. done is called when the name has been used.
func sockPath(dir, name string) (path string, done func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd())), name), func() { _ = f.Close() }, nil
}
