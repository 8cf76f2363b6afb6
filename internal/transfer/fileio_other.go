//go:build !linux && !darwin

package transfer

import (
	"errors"
	"os"
)

// cloneAt is not supported here.
func cloneAt(*os.File, *os.Root, string) error { return errors.ErrUnsupported }

// punch is not supported here.
func punch(*os.File, int64, int64) error { return errors.ErrUnsupported }
