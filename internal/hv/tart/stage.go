package tart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/reflink"
)

const copyBytes = 1 << 20 // of a disk in one write

// createDirectory makes the directory of a new VM with its disks: whole, or not at all.
func (m *machine) createDirectory(ctx context.Context, s hv.Spec) error {
	stage := filepath.Join(m.driver.opts.Home, stagingDir, m.id+"-"+newSuffix())
	if err := os.Mkdir(stage, 0o700); err != nil {
		return fmt.Errorf("create VM directory: %w", err)
	}
	err := m.fillDirectory(ctx, stage, s)
	if err == nil {
		err = os.Rename(stage, m.dir)
	}
	if err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w; remove VMs or templates from the node", err)
		}
		return errors.Join(fmt.Errorf("create VM directory: %w", err), os.RemoveAll(stage))
	}
	return nil
}

func (m *machine) fillDirectory(ctx context.Context, stage string, s hv.Spec) error {
	for i, name := range []string{rootFile, auxFile} {
		if err := createDisk(ctx, filepath.Join(stage, name), s.Disks[i]); err != nil {
			return err
		}
	}
	if err := growDisk(filepath.Join(stage, rootFile), s.DiskBytes); err != nil {
		return err
	}
	return errors.Join(
		writeBundleConfig(stage, newBundleConfig(s)),
		writeJSON(filepath.Join(stage, recordFile), record{Spec: s, CreatedAt: recordTime()}))
}

// createDisk makes a private disk: a clone of the base with the deltas written into it.
func createDisk(ctx context.Context, path string, d hv.Disk) error {
	if err := cloneOrCopy(ctx, d.Path, path); err != nil {
		return fmt.Errorf("clone disk %s: %w", d.Path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := f.Chmod(0o600); err != nil {
		return errors.Join(err, f.Close())
	}
	for _, delta := range d.Deltas {
		if err := applyDelta(ctx, f, delta); err != nil {
			return errors.Join(fmt.Errorf("apply delta %s: %w", delta, err), f.Close())
		}
	}
	if len(d.Deltas) > 0 {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// cloneOrCopy makes a file with the content of another, and syncs it. Where the file system cannot clone, the
// ranges with data are copied.
func cloneOrCopy(ctx context.Context, from, to string) error {
	err := reflink.CloneFile(from, to)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	in, err := diskfile.Disk{Path: from}.Open()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = copyData(ctx, out, in)
	return errors.Join(err, out.Truncate(in.Size()), out.Sync(), out.Close())
}

// copyData copies the ranges of a disk that have data to a file of zeros.
func copyData(ctx context.Context, to io.WriterAt, from *diskfile.OpenDisk) error {
	for off := int64(0); ; {
		start, end, err := from.NextData(off)
		if err != nil || start == end {
			return err
		}
		if err := copyRange(ctx, to, from, qcow2.Range{Off: start, Len: end - start}); err != nil {
			return err
		}
		off = end
	}
}

// applyDelta writes the changes of a qcow2 delta into a disk, which gets the delta's size.
func applyDelta(ctx context.Context, disk *os.File, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	delta, err := qcow2.Open(f, info.Size())
	if err != nil {
		return hv.RefusedError("%v", err)
	}
	if err := disk.Truncate(delta.Size()); err != nil {
		return err
	}
	for off := int64(0); ; {
		r, ok, err := delta.NextRange(off)
		if err != nil || !ok {
			return err
		}
		if err := applyRange(ctx, disk, delta, r); err != nil {
			return err
		}
		off = r.End()
	}
}

// applyRange writes one range of a delta.
func applyRange(ctx context.Context, disk *os.File, delta qcow2.Layer, r qcow2.Range) error {
	switch r.Kind {
	case qcow2.Absent:
		return nil
	case qcow2.Zero:
		return reflink.ZeroRange(disk, r.Off, r.Len)
	}
	return copyRange(ctx, disk, delta, r)
}

// copyRange copies a range of a disk.
func copyRange(ctx context.Context, to io.WriterAt, from io.ReaderAt, r qcow2.Range) error {
	buf := make([]byte, min(copyBytes, r.Len))
	for off := r.Off; off < r.End(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := buf[:min(int64(len(buf)), r.End()-off)]
		if _, err := from.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := to.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

// growDisk enlarges a raw disk to a size; 0 leaves it.
func growDisk(path string, size int64) error {
	if size == 0 {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if size < info.Size() {
		return hv.RefusedError("disk size %d: the image has %d bytes, and a disk can only grow", size, info.Size())
	}
	return os.Truncate(path, size)
}
