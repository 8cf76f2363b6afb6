//go:build !linux

package blob

import (
	"errors"
	"os"
)

// StartWriteback does nothing here: this system has no call for it.
func StartWriteback(*os.File, int64, int64) {}

// PunchHole does nothing here: the space stays allocated until the file is removed.
func PunchHole(*os.File, int64, int64) error { return nil }

// SyncData syncs a file's data to stable storage.
func SyncData(f *os.File) error { return f.Sync() }

// openDirect returns no second file: this system's bypass is a property of the open file itself.
func openDirect(f *os.File) (*os.File, error) { return nil, disablePageCache(f) }

func inPageCache(*os.File, int64, int64) bool { return true }

func seekData(*os.File, int64, int64) (start, end int64, err error) {
	return 0, 0, errors.ErrUnsupported
}
