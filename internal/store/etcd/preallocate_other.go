//go:build !linux

package etcd

import (
	"errors"
	"os"
)

// preallocate is supported on Linux only.
func preallocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
