package main

import (
	"errors"
	"fmt"

	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// compare reads a disk that a pull built, which may be an overlay on another one, and
// reports whether it holds the same bytes as the one that was made.
func compare(path, below string, out outcome, want disk) (err error) {
	d := diskfile.Disk{Path: path}
	if out.Built.Form == transfer.FormOverlay {
		d = diskfile.Disk{Path: below, Overlays: []string{path}}
	}
	open, err := d.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, open.Close()) }()
	if open.Size() != size {
		return fmt.Errorf("the disk that was pulled has %d bytes instead of %d", open.Size(), size)
	}
	sum, err := sumOf(open)
	if err != nil {
		return err
	}
	if sum != want.sum {
		return errors.New("the disk that was pulled is not the one that was pushed")
	}
	return nil
}
