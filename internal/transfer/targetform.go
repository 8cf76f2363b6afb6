package transfer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/reflink"
)

// chooseForm chooses how a target is built from local data: as a clone of it, as an overlay on it, or from nothing.
func (t *pullTarget) chooseForm(p *pull, h localChain) error {
	if h.layerCount > 0 && h.disk.IsRaw() {
		ok, err := p.canClone(h.disk.Path)
		if err != nil {
			return err
		}
		if ok {
			t.cloneSource = h.disk.Path
			t.afterClone = func() error { return nil }
			if p.opts.AfterClone != nil {
				t.afterClone = func() error { return p.opts.AfterClone(h.chainID) }
			}
			return t.makePlan(h)
		}
	}
	if h.layerCount > 0 && p.opts.AllowOverlays && t.hasAlignedChanges() {
		t.builtFile.Form, t.builtFile.ParentChainID = FormOverlay, h.chainID
		return t.makePlan(h)
	}
	return t.makePlan(localChain{})
}

// hasAlignedChanges reports whether all changes cover whole blocks. They do not if the disk once ended within one: data
// that was added later is in a block of another layer.
func (t *pullTarget) hasAlignedChanges() bool {
	top := len(t.indexes) - 1
	for _, x := range t.indexes[:top] {
		if x.ContentSize()%blob.BlockSize != 0 {
			return false
		}
	}
	return t.indexes[top].ContentSize() > 0
}

// makePlan makes the plan, and the journal key of a target that is built this way.
func (t *pullTarget) makePlan(h localChain) (err error) {
	if t.plan, err = blob.NewFetchPlan(t.indexes, h.layerCount); err != nil {
		return err
	}
	t.writtenFrames = make([]byte, (t.plan.FrameCount()+7)/8)
	key := sha256.New()
	fmt.Fprintf(key, "%s %s %d\n", t.builtFile.Form, h.chainID, h.layerCount)
	for _, x := range t.indexes {
		root := x.Digest()
		_, _ = key.Write(root[:])
	}
	key.Sum(t.planKey[:0])
	if t.builtFile.Form == FormOverlay {
		t.layout, err = t.layOutOverlay()
	}
	return err
}

// layOutOverlay assigns a position in an overlay to every range of the plan.
func (t *pullTarget) layOutOverlay() (*qcow2.Layout, error) {
	b := qcow2.NewBuilder(t.plan.DiskSize())
	var err error
	for i := range t.plan.FrameCount() {
		for piece := range t.plan.Placements(i) {
			err = errors.Join(err, b.Add(qcow2.Range{Off: piece.DiskOff, Len: piece.Len, Kind: qcow2.Data}))
		}
	}
	for z := range t.plan.ZeroRuns() {
		err = errors.Join(err, b.Add(qcow2.Range{Off: z.Off, Len: z.Len, Kind: qcow2.Zero}))
	}
	if err != nil {
		return nil, err
	}
	return b.Layout()
}

// canClone tests whether the directory's file system can clone a file.
func (p *pull) canClone(path string) (bool, error) {
	const probe = ".clone" + partialSuffix
	from, err := os.Open(path)
	if err != nil {
		return false, err
	}
	err = reflink.CloneAt(from, p.dir, probe)
	unsupported := errors.Is(err, errors.ErrUnsupported)
	if unsupported {
		err = nil
	}
	if gone := p.dir.Remove(probe); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return !unsupported, errors.Join(err, from.Close())
}

// createPartial creates the partial file of a target: empty, or a clone of local data.
func (t *pullTarget) createPartial() error {
	name := t.name + partialSuffix
	if t.cloneSource == "" {
		f, err := t.dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
		t.file = f
		return err
	}
	from, err := os.Open(t.cloneSource)
	if err != nil {
		return err
	}
	if err := errors.Join(reflink.CloneAt(from, t.dir, name), from.Close()); err != nil {
		return err
	}
	// Checked before the first checkpoint: without a journal no later pull resumes with the clone.
	if err := t.afterClone(); err != nil {
		return err
	}
	f, err := t.dir.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	t.file = f
	return f.Chmod(0o644)
}

// setFinalSize sets the final size of the partial file, and zeros its zero ranges. It may be repeated.
func (t *pullTarget) setFinalSize() error {
	if t.layout != nil {
		return t.file.Truncate(t.layout.FileSize())
	}
	if err := t.file.Truncate(t.plan.DiskSize()); err != nil {
		return err
	}
	for z := range t.plan.ZeroRuns() {
		if err := reflink.ZeroRange(t.file, z.Off, z.Len); err != nil {
			return fmt.Errorf("write zeros: %w", err)
		}
	}
	return nil
}

// filePosition returns the position of a range of the disk in the file, and how many of its bytes are contiguous
// there.
func (t *pullTarget) filePosition(off, n int64) (at, length int64) {
	if t.layout == nil {
		return off, n
	}
	at, length = t.layout.FileOffset(off)
	for length < n {
		next, more := t.layout.FileOffset(off + length)
		if next != at+length || more == 0 {
			break
		}
		length += more
	}
	return at, min(n, length)
}
