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
	out, err := createFile(path)
	if err != nil {
		return d, err
	}
	defer out.Close()
	w := newDeltaWriter(out, size)
	mapped := int64(0)
	err = mapOverlays(ctx, overlays, func(e extent) error {
		mapped = e.Start + e.Length
		switch {
		case mapped > size:
			return errors.New("an extent lies behind the end of the disk")
		case !*e.Present:
			return nil
		case !*e.Data:
			d.Zeroed += e.Length
			return w.add(ctx, e, nil)
		case e.Offset == nil || e.Depth >= len(files):
			return errors.New("an extent without a place")
		}
		d.Bytes += e.Length
		return w.add(ctx, e, files[e.Depth])
	})
	if err == nil && mapped != size {
		err = fmt.Errorf("the map of the overlays ends at %d of %d bytes", mapped, size)
	}
	if err == nil {
		err = w.finish()
	}
	if err == nil {
		err = out.Sync()
	}
	return d, err
}

// createFile makes a file in place of one that may be there. A QEMU that has that
// one open keeps it as it is.
func createFile(path string) (*os.File, error) {
	if err := removeFile(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// removeFile removes a file that may be missing.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
