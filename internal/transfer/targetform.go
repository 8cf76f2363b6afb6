package transfer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/qcow2"
)

// decide chooses how a target is built from local data: as a clone of it, as an overlay on it, or from nothing.
func (t *target) decide(p *pull, h localChain) error {
	if h.layers > 0 && h.disk.raw() {
		ok, err := p.cloneable(h.disk.Path)
		if err != nil {
			return err
		}
		if ok {
			t.origin = h.disk.Path
			t.cloned = func() error { return nil }
			if p.o.Cloned != nil {
				t.cloned = func() error { return p.o.Cloned(h.tip) }
			}
			return t.draw(h)
		}
	}
	if h.layers > 0 && p.o.Overlays && t.inBlocks() {
		t.built.Form, t.built.Below = FormOverlay, h.tip
		return t.draw(h)
	}
	return t.draw(localChain{})
}

// inBlocks reports whether all changes cover whole blocks. They do not if the disk once ended within one: data
// that was added later is in a block of another layer.
func (t *target) inBlocks() bool {
	top := len(t.chain) - 1
	for _, x := range t.chain[:top] {
		if x.Size()%blob.BlockSize != 0 {
			return false
		}
	}
	return t.chain[top].Size() > 0
}

// draw makes the plan, and the journal key of a target that is built this way.
func (t *target) draw(h localChain) (err error) {
	if t.plan, err = blob.NewPlan(t.chain, h.layers); err != nil {
		return err
	}
	t.bitmap = make([]byte, (t.plan.Len()+7)/8)
	key := sha256.New()
	fmt.Fprintf(key, "%s %s %d\n", t.built.Form, h.tip, h.layers)
	for _, x := range t.chain {
		root := x.Root()
		_, _ = key.Write(root[:])
	}
	key.Sum(t.key[:0])
	if t.built.Form == FormOverlay {
		t.layout, err = t.lay()
	}
	return err
}

// lay assigns a position in an overlay to every range of the plan.
func (t *target) lay() (*qcow2.Layout, error) {
	b := qcow2.NewBuilder(t.plan.Size())
	var err error
	for i := range t.plan.Len() {
		for piece := range t.plan.Pieces(i) {
			err = errors.Join(err, b.Add(qcow2.Range{Off: piece.Off, Len: piece.Len, Kind: qcow2.Data}))
		}
	}
	for z := range t.plan.Zeros() {
		err = errors.Join(err, b.Add(qcow2.Range{Off: z.Off, Len: z.Len, Kind: qcow2.Zero}))
	}
	if err != nil {
		return nil, err
	}
	return b.Layout()
}

// cloneable tests whether the directory's file system can clone a file.
func (p *pull) cloneable(path string) (bool, error) {
	const probe = ".clone" + partialSuffix
	from, err := os.Open(path)
	if err != nil {
		return false, err
	}
	err = cloneAt(from, p.dir, probe)
	unsupported := errors.Is(err, errors.ErrUnsupported)
	if unsupported {
		err = nil
	}
	if gone := p.dir.Remove(probe); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return !unsupported, errors.Join(err, from.Close())
}

// Clone creates a file that shares all its bytes with another one until one of them is written, and syncs it.
// It replaces an existing file. It returns errors.ErrUnsupported if the file system cannot clone. After an
// error an empty file may be left.
func Clone(from, to string) error {
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
	if err := cloneAt(f, dir, name); err != nil {
		return err
	}
	made, err := dir.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(made.Sync(), made.Close())
}

// begin creates the partial file of a target: empty, or a clone of local data.
func (t *target) begin() error {
	name := t.name + partialSuffix
	if t.origin == "" {
		f, err := t.dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
		t.file = f
		return err
	}
	from, err := os.Open(t.origin)
	if err != nil {
		return err
	}
	if err := errors.Join(cloneAt(from, t.dir, name), from.Close()); err != nil {
		return err
	}
	// Checked before the first checkpoint: without a journal no later pull resumes with the clone.
	if err := t.cloned(); err != nil {
		return err
	}
	f, err := t.dir.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	t.file = f
	return f.Chmod(0o644)
}

// size sets the final size of the partial file, and zeros its zero ranges. It may be repeated.
func (t *target) size() error {
	if t.layout != nil {
		return t.file.Truncate(t.layout.FileSize())
	}
	if err := t.file.Truncate(t.plan.Size()); err != nil {
		return err
	}
	for z := range t.plan.Zeros() {
		if err := wipe(t.file, z.Off, z.Len); err != nil {
			return fmt.Errorf("write zeros: %w", err)
		}
	}
	return nil
}

// wipe zeros a range of a file.
func wipe(f *os.File, off, n int64) error {
	if err := punch(f, off, n); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return writeZeros(f, off, n)
}

// writeZeros writes zeros over a range of a file.
func writeZeros(f *os.File, off, n int64) error {
	zeros := make([]byte, min(n, blob.FrameSize))
	for n > 0 {
		part := zeros[:min(n, int64(len(zeros)))]
		if _, err := f.WriteAt(part, off); err != nil {
			return err
		}
		off, n = off+int64(len(part)), n-int64(len(part))
	}
	return nil
}

// place returns the position of a range of the disk in the file, and how many of its bytes are contiguous
// there.
func (t *target) place(off, n int64) (at, length int64) {
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
