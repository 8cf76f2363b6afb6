//go:build !linux

package etcd

import (
	"errors"
	"os"
)

// allocate is for Linux alone.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
