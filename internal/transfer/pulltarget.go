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
	// maxSpanBytes bounds one range request.
	maxSpanBytes = 16 << 20
	// maxGapBytes is the largest gap that is read and discarded rather than excluded from a request.
	maxGapBytes = 128 << 10
)

// pullTarget is one file that a pull builds. Its journal contains a key of the sources and the form, and one bit
// for each frame of the plan. A bit is set only after the frame is on stable storage. The file has its final
// name only when all bits are set.
type pullTarget struct {
	dir       *os.Root
	storage   stableStorage
	name      string
	layers    []api.PullLayer // where they are
	indexes   []*blob.Index
	builtFile BuiltFile

	plan        *blob.FetchPlan
	layout      *qcow2.Layout // of an overlay; nil when the file is flat
	cloneSource string        // file that is cloned; "" when the file starts empty
	afterClone  func() error  // reports whether the origin had its content while it was cloned
	planKey     [sha256.Size]byte
	file        *os.File    // nil when the file has its final name already
	early       *os.File    // that had its final name before the pull ended; nil: it did not
	onFrame     func(i int) // called after a frame was written; nil: nothing

	mu            sync.Mutex // guards the fields below
	writtenFrames []byte     // frames that are written
	unsyncedBytes int64      // bytes written since the last checkpoint
	missingFrames []int32    // in each HoldingUnit of the disk; nil: not counted

	checkpointMu sync.Mutex // held during a checkpoint
}

// openTarget plans a file and resumes an earlier pull of the same plan.
func (p *pull) openTarget(ctx context.Context, f api.PullFile) (*pullTarget, error) {
	chain, err := p.fetchIndexes(ctx, f)
	if err != nil {
		return nil, err
	}
	t := &pullTarget{
		dir: p.dir, storage: p.storage, name: f.Name, layers: f.Layers, indexes: chain,
		builtFile: BuiltFile{Name: f.Name, Form: FormFlat, ChainID: chainIDOf(topLayer(f))},
	}
	if err := t.chooseForm(p, p.findLocalChain(f, chain)); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	resumed, err := t.readJournal()
	if err != nil {
		return nil, err
	}
	if _, err := p.dir.Stat(f.Name); err == nil && resumed && t.isComplete() {
		if _, err := p.dir.Stat(f.Name + partialSuffix); errors.Is(err, fs.ErrNotExist) {
			return t, nil
		}
	}
	return t, t.openPartial(resumed)
}

// openPartial opens the partial file; it keeps an old one only if the journal matches.
func (t *pullTarget) openPartial(resumed bool) error {
	_, err := t.dir.Stat(t.name + partialSuffix)
	if err == nil && resumed {
		t.file, err = t.dir.OpenFile(t.name+partialSuffix, os.O_RDWR, 0)
	} else {
		// The journal of another file must be removed before this one has any byte.
		clear(t.writtenFrames)
		if err := errors.Join(t.removeJournal(), t.storage.syncDir(t.dir)); err != nil {
			return err
		}
		err = t.createPartial()
	}
	if err != nil {
		return err
	}
	return t.setFinalSize()
}

func (t *pullTarget) close() error {
	if t.early != nil {
		return t.early.Close()
	}
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// readJournal loads the bitmap; false when there is none for this layer.
func (t *pullTarget) readJournal() (bool, error) {
	raw, err := t.dir.ReadFile(t.name + journalSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	bitmap, ok := bytes.CutPrefix(raw, t.planKey[:])
	if !ok || len(bitmap) != len(t.writtenFrames) {
		return false, nil
	}
	copy(t.writtenFrames, bitmap)
	if extra := t.plan.FrameCount() % 8; extra != 0 && len(bitmap) > 0 {
		t.writtenFrames[len(bitmap)-1] &= 1<<extra - 1
	}
	return true, nil
}

func (t *pullTarget) isComplete() bool {
	n := 0
	for _, b := range t.writtenFrames {
		n += bits.OnesCount8(b)
	}
	return n == t.plan.FrameCount()
}

func (t *pullTarget) hasFrame(i int) bool { return t.writtenFrames[i/8]&(1<<(i%8)) != 0 }

// frameAt returns the layer and the position of frame i of the plan.
func (t *pullTarget) frameAt(i int) (layer int, f blob.Frame) {
	layer, n := t.plan.FramePosition(i)
	return layer, t.indexes[layer].Frame(n)
}

// doneBytes is the number of stored bytes of the frames that are done.
func (t *pullTarget) doneBytes() int64 {
	var n int64
	for i := range t.plan.FrameCount() {
		if t.hasFrame(i) {
			_, f := t.frameAt(i)
			n += int64(f.StoredSize)
		}
	}
	return n
}

// fetchSpan is a range of one layer to fetch: frames first to last-1 of the plan, and small gaps between them.
type fetchSpan struct {
	target               *pullTarget
	layer                int
	firstFrame, endFrame int
}

// missingSpans returns the frames that are not written yet, in spans of bounded size.
func (t *pullTarget) missingSpans() []fetchSpan {
	var out []fetchSpan
	var from, end int64 // of the newest span, in its layer
	for i := range t.plan.FrameCount() {
		if t.hasFrame(i) {
			continue
		}
		layer, f := t.frameAt(i)
		last := len(out) - 1
		behind := f.Offset + int64(f.StoredSize)
		if last < 0 || out[last].layer != layer || f.Offset-end > maxGapBytes || behind-from > maxSpanBytes ||
			out[last].endFrame != i {
			out = append(out, fetchSpan{target: t, layer: layer, firstFrame: i})
			from, last = f.Offset, last+1
		}
		out[last].endFrame, end = i+1, behind
	}
	return out
}

// recordFrame records a written frame, and now and then makes that durable.
func (t *pullTarget) recordFrame(i int, raw int) error {
	t.mu.Lock()
	if !t.hasFrame(i) {
		t.addMissingLocked(i, -1)
	}
	t.writtenFrames[i/8] |= 1 << (i % 8)
	t.unsyncedBytes += int64(raw)
	due := t.unsyncedBytes >= checkpointBytes
	t.mu.Unlock()
	if t.onFrame != nil {
		t.onFrame(i)
	}
	if !due || !t.checkpointMu.TryLock() {
		return nil
	}
	defer t.checkpointMu.Unlock()
	return t.checkpointLocked()
}

// checkpoint syncs the written frames and then the bitmap.
func (t *pullTarget) checkpoint() error {
	if t.file == nil {
		return nil
	}
	t.checkpointMu.Lock()
	defer t.checkpointMu.Unlock()
	return t.checkpointLocked()
}

func (t *pullTarget) checkpointLocked() error {
	t.mu.Lock()
	bitmap := bytes.Clone(t.writtenFrames)
	t.unsyncedBytes = 0
	t.mu.Unlock()
	if err := t.storage.syncWith(t.file, blob.SyncData); err != nil {
		return fmt.Errorf("sync %s: %w", t.name, err)
	}
	// Written in place: bits are only ever set, so a torn write is partly an older bitmap.
	j, err := t.dir.OpenFile(t.name+journalSuffix, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = j.WriteAt(append(t.planKey[:len(t.planKey):len(t.planKey)], bitmap...), 0)
	if err == nil {
		err = t.storage.sync(j)
	}
	return errors.Join(err, j.Close())
}

// renameFinal renames the finished file to its final name.
func (t *pullTarget) renameFinal() error {
	if t.file == nil {
		return nil
	}
	if !t.isComplete() {
		return fmt.Errorf("%s is incomplete", t.name)
	}
	if t.layout != nil {
		if err := t.layout.Finish(t.file); err != nil {
			return err
		}
	}
	if err := t.storage.sync(t.file); err != nil {
		return err
	}
	return t.dir.Rename(t.name+partialSuffix, t.name)
}

// removeJournal removes the journal.
func (t *pullTarget) removeJournal() error {
	err := t.dir.Remove(t.name + journalSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RemoveJournal removes what a pull that was killed at its end has left next to a complete file.
func RemoveJournal(path string) error {
	if err := os.Remove(path + journalSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
