// Package reflink creates files that share their bytes with others (FICLONE, clonefile), and holes in files.
//
// It does not copy bytes: where the file system cannot clone, the caller decides what to do.
//
// Invariant: the original of a clone is never written.
package reflink

import (
	"errors"
	"os"
	"path/filepath"
)

const maxWriteBytes = 1 << 20 // of zeros in one write

// CloneFile creates a file that shares all its bytes with another one until one of them is written, and syncs it.
// It replaces an existing file. It returns errors.ErrUnsupported if the file system cannot clone. After an
// error an empty file may be left.
func CloneFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	dir, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(to)
	if err := CloneAt(f, dir, name); err != nil {
		return err
	}
	made, err := dir.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(made.Sync(), made.Close())
}

// ZeroRange zeros a range of a file: as a hole where the file system can, otherwise by writing zeros.
func ZeroRange(f *os.File, off, n int64) error {
	if err := punchHole(f, off, n); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return writeZeros(f, off, n)
}

// writeZeros writes zeros over a range of a file.
func writeZeros(f *os.File, off, n int64) error {
	zeros := make([]byte, min(n, maxWriteBytes))
	for n > 0 {
		part := zeros[:min(n, int64(len(zeros)))]
		if _, err := f.WriteAt(part, off); err != nil {
			return err
		}
		off, n = off+int64(len(part)), n-int64(len(part))
	}
	return nil
}
