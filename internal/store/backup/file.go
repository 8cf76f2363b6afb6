package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// partSuffix ends the name of a file that is still being written.
const partSuffix = ".part"

// OverwritePolicy selects what Write does with a file that already has the name.
type OverwritePolicy int

// The policies.
const (
	KeepExisting    OverwritePolicy = iota // fail and leave it as it is
	ReplaceExisting                        // replace it with the new one at the end
)

// WriteFile stores a backup from a stream under path: first in a file next to it, which is checked,
// flushed to disk and renamed. A write that fails or is killed leaves the existing file as it was.
func WriteFile(path string, src io.Reader, existing OverwritePolicy) (sum *ChecksumWriter, err error) {
	if _, err := os.Lstat(path); err == nil && existing == KeepExisting {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+partSuffix) // mode 0600
	if err != nil {
		return nil, fmt.Errorf("write the backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write the backup %s: %w", path, err), os.Remove(part.Name()))
		}
	}()
	sum, err = copyAndSync(part, src)
	if err != nil {
		return nil, err
	}
	if err := renameIntoPlace(part.Name(), path, existing); err != nil {
		return nil, err
	}
	return sum, syncDir(filepath.Dir(path))
}

// copyAndSync copies, checks, flushes and closes.
func copyAndSync(part *os.File, src io.Reader) (*ChecksumWriter, error) {
	sum := NewChecksumWriter()
	_, err := io.Copy(io.MultiWriter(part, sum), src)
	if err == nil {
		err = sum.Err()
	}
	if err == nil {
		err = part.Sync()
	}
	return sum, errors.Join(err, part.Close())
}

// renameIntoPlace renames the finished file. A link fails where a file has appeared concurrently, a rename
// would replace it; but some shared directories do not support links.
func renameIntoPlace(part, path string, existing OverwritePolicy) error {
	if existing == KeepExisting {
		err := os.Link(part, path)
		if err == nil {
			return os.Remove(part)
		}
		if _, seen := os.Lstat(path); errors.Is(err, fs.ErrExist) || seen == nil {
			return fs.ErrExist
		}
	}
	return os.Rename(part, path)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
