//go:build !linux

package etcd

import (
	"errors"
	"os"
)

// allocate is supported on Linux only.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
