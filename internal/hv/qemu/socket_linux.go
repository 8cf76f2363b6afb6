package qemu

import (
	"os"
	"path/filepath"
	"strconv"
)

// sockPath answers a short name for dir/name: socket addresses end at 108
// bytes, directories do not. done is called when the name has been used.
func sockPath(dir, name string) (path string, done func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd())), name), func() { _ = f.Close() }, nil
}
