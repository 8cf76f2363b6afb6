package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/qcow2"
)

const (
	partialSuffix = ".partial"
	journalSuffix = ".journal"
	// checkpointBytes is the maximum that may have to be fetched again after a crash.
	checkpointBytes = 256 << 20
	// spanBytes bounds one range request.
	spanBytes = 16 << 20
	// gapBytes is the largest gap that is read and discarded rather than excluded from a request.
	gapBytes = 128 << 10
)

// target is one file that a pull builds. Its journal contains a key of the sources and the form, and one bit
// for each frame of the plan. A bit is set only after the frame is on stable storage. The file has its final
// name only when all bits are set.
type target struct {
	dir    *os.Root
	disk   stableStorage
	name   string
	layers []api.PullLayer // where they are
	chain  []*blob.Index
	built  BuiltFile

	plan   *blob.Plan
	layout *qcow2.Layout // of an overlay; nil when the file is flat
	origin string        // file that is cloned; "" when the file starts empty
	cloned func() error  // reports whether the origin had its content while it was cloned
	key    [sha256.Size]byte
	file   *os.File // nil when the file has its final name already

	mu      sync.Mutex // guards the fields below
	bitmap  []byte     // frames that are written
	pending int64      // bytes written since the last checkpoint

	saving sync.Mutex // held during a checkpoint
}

// open plans a file and resumes an earlier pull of the same plan.
func (p *pull) open(ctx context.Context, f api.PullFile) (*target, error) {
	chain, err := p.chain(ctx, f)
	if err != nil {
		return nil, err
	}
	t := &target{
		dir: p.dir, disk: p.disk, name: f.Name, layers: f.Layers, chain: chain,
		built: BuiltFile{Name: f.Name, Form: FormFlat, Tip: tipOf(topOf(f))},
	}
	if err := t.decide(p, p.nearest(f, chain)); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	resumed, err := t.readJournal()
	if err != nil {
		return nil, err
	}
	if _, err := p.dir.Stat(f.Name); err == nil && resumed && t.complete() {
		if _, err := p.dir.Stat(f.Name + partialSuffix); errors.Is(err, fs.ErrNotExist) {
			return t, nil
		}
	}
	return t, t.create(resumed)
}

// create opens the partial file; it keeps an old one only if the journal matches.
func (t *target) create(resumed bool) error {
	_, err := t.dir.Stat(t.name + partialSuffix)
	if err == nil && resumed {
		t.file, err = t.dir.OpenFile(t.name+partialSuffix, os.O_RDWR, 0)
	} else {
		// The journal of another file must be removed before this one has any byte.
		clear(t.bitmap)
		if err := errors.Join(t.forget(), t.disk.syncDir(t.dir)); err != nil {
			return err
		}
		err = t.begin()
	}
	if err != nil {
		return err
	}
	return t.size()
}

func (t *target) close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// readJournal loads the bitmap; false when there is none for this layer.
func (t *target) readJournal() (bool, error) {
	raw, err := t.dir.ReadFile(t.name + journalSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	bitmap, ok := bytes.CutPrefix(raw, t.key[:])
	if !ok || len(bitmap) != len(t.bitmap) {
		return false, nil
	}
	copy(t.bitmap, bitmap)
	if extra := t.plan.Len() % 8; extra != 0 && len(bitmap) > 0 {
		t.bitmap[len(bitmap)-1] &= 1<<extra - 1
	}
	return true, nil
}

func (t *target) complete() bool {
	n := 0
	for _, b := range t.bitmap {
		n += bits.OnesCount8(b)
	}
	return n == t.plan.Len()
}

func (t *target) has(i int) bool { return t.bitmap[i/8]&(1<<(i%8)) != 0 }

// frame returns the layer and the position of frame i of the plan.
func (t *target) frame(i int) (layer int, f blob.Frame) {
	layer, n := t.plan.Frame(i)
	return layer, t.chain[layer].Frame(n)
}

// have is the number of stored bytes of the frames that are done.
func (t *target) have() int64 {
	var n int64
	for i := range t.plan.Len() {
		if t.has(i) {
			_, f := t.frame(i)
			n += int64(f.Stored)
		}
	}
	return n
}

// span is a range of one layer to fetch: frames first to last-1 of the plan, and small gaps between them.
type span struct {
	t           *target
	layer       int
	first, last int
}

// missing returns the frames that are not written yet, in spans of bounded size.
func (t *target) missing() []span {
	var out []span
	var from, end int64 // of the newest span, in its layer
	for i := range t.plan.Len() {
		if t.has(i) {
			continue
		}
		layer, f := t.frame(i)
		last := len(out) - 1
		behind := f.Offset + int64(f.Stored)
		if last < 0 || out[last].layer != layer || f.Offset-end > gapBytes || behind-from > spanBytes ||
			out[last].last != i {
			out = append(out, span{t: t, layer: layer, first: i})
			from, last = f.Offset, last+1
		}
		out[last].last, end = i+1, behind
	}
	return out
}

// wrote records a written frame, and now and then makes that durable.
func (t *target) wrote(i int, raw int) error {
	t.mu.Lock()
	t.bitmap[i/8] |= 1 << (i % 8)
	t.pending += int64(raw)
	due := t.pending >= checkpointBytes
	t.mu.Unlock()
	if !due || !t.saving.TryLock() {
		return nil
	}
	defer t.saving.Unlock()
	return t.checkpointLocked()
}

// checkpoint syncs the written frames and then the bitmap.
func (t *target) checkpoint() error {
	if t.file == nil {
		return nil
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	return t.checkpointLocked()
}

func (t *target) checkpointLocked() error {
	t.mu.Lock()
	bitmap := bytes.Clone(t.bitmap)
	t.pending = 0
	t.mu.Unlock()
	if err := t.disk.syncBy(t.file, blob.SyncData); err != nil {
		return fmt.Errorf("sync %s: %w", t.name, err)
	}
	// Written in place: bits are only ever set, so a torn write is partly an older bitmap.
	j, err := t.dir.OpenFile(t.name+journalSuffix, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = j.WriteAt(append(t.key[:len(t.key):len(t.key)], bitmap...), 0)
	if err == nil {
		err = t.disk.sync(j)
	}
	return errors.Join(err, j.Close())
}

// rename renames the finished file to its final name.
func (t *target) rename() error {
	if t.file == nil {
		return nil
	}
	if !t.complete() {
		return fmt.Errorf("%s is incomplete", t.name)
	}
	if t.layout != nil {
		if err := t.layout.Finish(t.file); err != nil {
			return err
		}
	}
	if err := t.disk.sync(t.file); err != nil {
		return err
	}
	return t.dir.Rename(t.name+partialSuffix, t.name)
}

// forget removes the journal.
func (t *target) forget() error {
	err := t.dir.Remove(t.name + journalSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
