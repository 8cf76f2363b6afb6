package layout

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// reserveFile occupies space that is released when the disk is full, so that small important files can still be
// written.
const reserveFile = "reserve"

// HasReserve reports whether the reserve exists.
func (d *Dir) HasReserve() bool {
	st, err := d.root.Stat(reserveFile)
	return err == nil && st.Size() > 0
}

// CreateReserve makes a reserve of size bytes. Where space cannot be allocated its bytes are random, so that a
// file system cannot compress them.
func (d *Dir) CreateReserve(size int64) error {
	temp := reserveFile + tempSuffix
	err := d.fillReserve(temp, size)
	if err == nil {
		err = d.RenameInDir("reserve", temp, reserveFile)
	}
	if err != nil {
		return errors.Join(err, d.RemoveAll("reserve", temp))
	}
	return nil
}

func (d *Dir) fillReserve(name string, size int64) error {
	d.AnnounceStep("reserve.create")
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("create disk reserve: %w", err)
	}
	allocated, err := preallocate(f, size)
	if err == nil && !allocated {
		err = fillRandom(f, size)
	}
	if err == nil {
		d.AnnounceStep("reserve.sync")
		err = d.Sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("create disk reserve: %w", err)
	}
	return nil
}

func fillRandom(f *os.File, size int64) error {
	block := make([]byte, min(size, 1<<20))
	_, _ = rand.Read(block)
	for left := size; left > 0; left -= int64(len(block)) {
		if _, err := f.Write(block[:min(left, int64(len(block)))]); err != nil {
			return err
		}
	}
	return nil
}

// RemoveReserve removes the reserve; false when there is none.
func (d *Dir) RemoveReserve() (bool, error) {
	d.AnnounceStep("reserve.remove")
	err := d.root.Remove(reserveFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("release disk reserve: %w", err)
	}
	return true, nil
}
