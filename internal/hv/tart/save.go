package tart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/qcow2"
)

var (
	_ hv.Saver     = (*Driver)(nil)
	_ hv.Restarter = (*Driver)(nil)
)

// saveShutdownTimeout limits how long a guest that is to be saved may take to shut down.
const saveShutdownTimeout = 5 * time.Minute

// Save shuts the guest down and writes the changes of both disks.
func (d *Driver) Save(ctx context.Context, id string, spec hv.SaveSpec) (hv.SaveResult, error) {
	if err := spec.Validate(); err != nil {
		return hv.SaveResult{}, err
	}
	if spec.Suspend {
		return hv.SaveResult{}, hv.RefusalSuspend.Error("tart")
	}
	if !hv.ValidID(id) {
		return hv.SaveResult{}, fmt.Errorf("tart: %w: %s", hv.ErrNotFound, id)
	}
	m := d.machine(id)
	m.busy.Lock()
	defer m.busy.Unlock()
	result, err := m.save(ctx, spec)
	if err == nil {
		return result, nil
	}
	for i := range hv.AppleDisks {
		if gone := os.Remove(deltaPath(spec.Dir, i)); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return hv.SaveResult{}, fmt.Errorf("tart: save VM %s: %w", id, err)
}

func deltaPath(dir string, disk int) string {
	return filepath.Join(dir, fmt.Sprintf("delta%d.qcow2", disk))
}

func (m *machine) save(ctx context.Context, spec hv.SaveSpec) (hv.SaveResult, error) {
	var result hv.SaveResult
	if err := m.shutDownToSave(ctx); err != nil {
		return result, err
	}
	if err := spec.ReportStep(hv.SavedGuest); err != nil {
		return result, err
	}
	r, err := m.recordNow()
	if err != nil {
		return result, err
	}
	for i, name := range []string{rootFile, auxFile} {
		disk, err := writeDelta(ctx, filepath.Join(m.dir, name), r.Spec.Disks[i], deltaPath(spec.Dir, i))
		if err != nil {
			return result, err
		}
		result.Disks = append(result.Disks, disk)
	}
	return result, spec.ReportStep(hv.SavedDisks)
}

// shutDownToSave shuts a running guest down. It forces nothing: what a guest has not written is lost.
func (m *machine) shutDownToSave(ctx context.Context) error {
	vm, err := m.describe()
	if err != nil || vm.Status != hv.Running {
		return err
	}
	if err := m.updateRecord(func(r *record) { r.StopRequested = true }); err != nil {
		return err
	}
	if err := m.shutDown(ctx, saveShutdownTimeout); err != nil {
		// The guest continues, and its end is no longer requested.
		return errors.Join(err, m.updateRecord(func(r *record) { r.StopRequested = false }))
	}
	if err := m.stopForwarder(ctx); err != nil {
		return err
	}
	if vm, err = m.describe(); err != nil {
		return err
	}
	if why := m.runLog().failure(); why != shutDownText {
		return fmt.Errorf("the guest did not shut down in order: %s", why)
	}
	return nil
}

// writeDelta compares a disk with its base and writes the difference as a qcow2 delta.
func writeDelta(ctx context.Context, path string, base hv.Disk, to string) (saved hv.SavedDisk, err error) {
	disk, err := diskfile.Disk{Path: path}.Open()
	if err != nil {
		return saved, err
	}
	defer func() { _ = disk.Close() }() // both are only read
	parent, err := diskfile.Disk{Path: base.Path, Format: base.Format, Overlays: base.Deltas}.Open()
	if err != nil {
		return saved, err
	}
	defer func() { _ = parent.Close() }()
	layout, err := compareDisks(ctx, disk, parent)
	if err != nil {
		return saved, fmt.Errorf("compare %s with its base: %w", filepath.Base(path), err)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return saved, err
	}
	err = layout.CopyData(ctx, out, disk)
	if err == nil {
		err = layout.Finish(out)
	}
	return hv.SavedDisk{
		Path: to, Format: "qcow2", ChangedBytes: layout.DataBytes(), ZeroedBytes: layout.ZeroBytes(),
	}, errors.Join(err, out.Close())
}

// compareDisks returns the layout of a delta with every block of a disk that differs from its parent.
func compareDisks(ctx context.Context, disk, parent *diskfile.OpenDisk) (*qcow2.Layout, error) {
	changes := blob.Compare(disk, parent, disk.Size())
	b := qcow2.NewBuilder(disk.Size())
	kinds := map[blob.ChangeKind]qcow2.Kind{blob.ChangeData: qcow2.Data, blob.ChangeZero: qcow2.Zero}
	for off := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, more, err := changes.NextChange(off)
		if err != nil {
			return nil, err
		}
		if !more {
			return b.Layout()
		}
		if err := b.Add(qcow2.Range{Off: c.Off, Len: c.Len, Kind: kinds[c.Kind]}); err != nil {
			return nil, err
		}
		off = c.Off + c.Len
	}
}

// Restart ends a VM by force and starts it from its disks.
func (d *Driver) Restart(ctx context.Context, id string, edit func(*hv.Spec)) (hv.VM, error) {
	if !hv.ValidID(id) {
		return hv.VM{}, fmt.Errorf("tart: %w: %s", hv.ErrNotFound, id)
	}
	r, err := d.machine(id).recordNow()
	if err != nil {
		return hv.VM{}, err
	}
	after := r.Spec.Clone()
	if edit != nil {
		edit(&after)
	}
	if err := hv.CheckRestart(r.Spec, after); err != nil {
		return hv.VM{}, fmt.Errorf("tart: restart VM %s: %w", id, err)
	}
	if err := d.Stop(ctx, id, hv.StopForce); err != nil {
		return hv.VM{}, err
	}
	return d.Start(ctx, after)
}
