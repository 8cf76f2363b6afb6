package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/qcow2"
)

// stateFile is the name of a state in the directory of its save.
const stateFile = "vm.state"

// exportDeltas writes the delta of each disk: the content of the overlays of these generations. On
// failure it removes what it has written.
func (m *machine) exportDeltas(ctx context.Context, dir string, generations []int) (out []hv.SavedDisk, err error) {
	m.mu.Lock()
	disks := len(m.config.Spec.Disks)
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
			paths[k] = m.overlayPath(i, g)
		}
		d, err := writeDelta(ctx, deltaPath(dir, i), paths)
		if err != nil {
			return nil, fmt.Errorf("write changes of disk %d: %w", i, err)
		}
		out = append(out, d)
	}
	return out, syncDir(dir)
}

func deltaPath(dir string, disk int) string {
	return filepath.Join(dir, fmt.Sprintf("delta%d.qcow2", disk))
}

// writeDelta creates one file from a chain of overlays, lowest first. QEMU wrote them, and a guest
// may have compromised QEMU: they are read here, as untrusted images, and by no tool.
func writeDelta(ctx context.Context, path string, overlays []string) (hv.SavedDisk, error) {
	d := hv.SavedDisk{Path: path, Format: "qcow2"}
	layers := make([]qcow2.Layer, len(overlays))
	for i, name := range overlays {
		f, err := os.Open(name)
		if err != nil {
			return d, err
		}
		defer f.Close()
		if layers[i], err = openOverlay(f); err != nil {
			return d, fmt.Errorf("overlay %s: %w", name, err)
		}
	}
	disk := qcow2.Stack(layers...)
	layout, err := overlayLayout(ctx, disk)
	if err != nil {
		return d, err
	}
	out, err := createFile(path)
	if err != nil {
		return d, err
	}
	defer out.Close()
	if err := layout.CopyData(ctx, out, disk); err != nil {
		return d, err
	}
	d.ChangedBytes, d.ZeroedBytes = layout.DataBytes(), layout.ZeroBytes()
	return d, layout.Finish(out)
}

func openOverlay(f *os.File) (*qcow2.Image, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	return qcow2.Open(f, info.Size())
}

// overlayLayout lays out an overlay with the content of a chain of overlays.
func overlayLayout(ctx context.Context, disk qcow2.Layer) (*qcow2.Layout, error) {
	b := qcow2.NewBuilder(disk.Size())
	for off := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, ok, err := disk.NextRange(off)
		if err != nil {
			return nil, err
		}
		if !ok {
			return b.Layout()
		}
		if err := b.Add(r); err != nil {
			return nil, err
		}
		off = r.End()
	}
}

// createFile creates a file in place of an existing one. A QEMU that has the old one open keeps its
// content.
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
