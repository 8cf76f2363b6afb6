//go:build !linux

package qemu

import (
	"fmt"
	"path/filepath"
)

// maxSockPath is the length that fits into sun_path on these systems, including its final NUL.
const maxSockPath = 103

// sockPath returns dir/name, which must be short enough for a socket address.
func sockPath(dir, name string) (path string, done func(), err error) {
	path = filepath.Join(dir, name)
	if len(path) > maxSockPath {
		return "", nil, fmt.Errorf("%s is longer than a socket address (%d bytes); use a shorter directory", path,
			maxSockPath)
	}
	return path, func() {}, nil
}
