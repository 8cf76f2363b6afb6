package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/hv"
)

// stateFile is the name of a state in the directory of its save.
const stateFile = "vm.state"

// export writes the delta of each disk: everything that the overlays of these
// generations hold. On failure it takes away what it has written.
func (m *machine) export(ctx context.Context, dir string, generations []int) (out []hv.SavedDisk, err error) {
	m.mu.Lock()
	disks := len(m.cfg.Spec.Disks)
	m.mu.Unlock()
	defer func() {
		if err != nil {
			for i := range disks {
				err = errors.Join(err, removeFile(deltaPath(dir, i)))
			}
		}
	}()
	for i := range disks {
		paths := make([]string, len(generations))
		for k, g := range generations {
			paths[k] = m.overlay(i, g)
		}
		d, err := writeDelta(ctx, deltaPath(dir, i), paths)
		if err != nil {
			return nil, fmt.Errorf("delta of disk %d: %w", i, err)
		}
		out = append(out, d)
	}
	return out, syncDir(dir)
}

func deltaPath(dir string, disk int) string {
	return filepath.Join(dir, fmt.Sprintf("delta%d.qcow2", disk))
}

// writeDelta makes one file of a chain of overlays, lowest first. QEMU wrote
// them, and a guest may have got hold of QEMU: their headers are looked at
// before a tool opens them.
func writeDelta(ctx context.Context, path string, overlays []string) (hv.SavedDisk, error) {
	d := hv.SavedDisk{Path: path, Format: "qcow2"}
	files := make([]*os.File, len(overlays))
	var size int64
	for i, name := range overlays {
		f, n, err := openBase(hv.Disk{Path: name, Format: "qcow2"})
		if err != nil {
			return d, err
		}
		defer f.Close()
		files[len(files)-1-i], size = f, n // by depth
	}
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return d, err
	}
	defer out.Close()
	w := newDeltaWriter(out, size)
	err = mapOverlays(ctx, overlays, func(e extent) error {
		switch {
		case !e.Present:
			return nil
		case e.Start+e.Length > size:
			return errors.New("an extent lies behind the end of the disk")
		case !e.Data:
			d.Zeroed += e.Length
			return w.add(e.Start, e.Length, nil, 0)
		case e.Offset == nil || e.Depth >= len(files):
			return errors.New("an extent without a place")
		}
		d.Bytes += e.Length
		return w.add(e.Start, e.Length, files[e.Depth], *e.Offset)
	})
	if err == nil {
		err = w.finish()
	}
	if err == nil {
		err = out.Sync()
	}
	return d, err
}

// removeFile removes a file that may be missing.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
