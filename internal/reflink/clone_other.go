//go:build !linux && !darwin

package reflink

import (
	"errors"
	"os"
)

// CloneAt is not supported here.
func CloneAt(*os.File, *os.Root, string) error { return errors.ErrUnsupported }

// punchHole is not supported here.
func punchHole(*os.File, int64, int64) error { return errors.ErrUnsupported }
