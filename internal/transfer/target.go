package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
)

const (
	partialSuffix = ".partial"
	journalSuffix = ".journal"
	// checkpointBytes is how much may have to be fetched again after a crash.
	checkpointBytes = 256 << 20
	// spanBytes bounds one range request.
	spanBytes = 16 << 20
)

// target is one file that a pull builds. Its journal holds the root of the layer and one bit a frame; a bit is
// set only after the frame is on stable storage. The file has its final name only when all bits are set.
type target struct {
	dir   *os.Root
	spec  api.PullFile
	index *blob.Index
	file  *os.File // nil when the file has its final name already
	moved atomic.Int64

	mu      sync.Mutex // guards the fields below
	bitmap  []byte     // frames that are written
	pending int64      // bytes written since the last checkpoint

	saving sync.Mutex // held over a checkpoint
}

// open reads the index of a file and takes up what an earlier pull of the same layer left.
func (p *pull) open(ctx context.Context, f api.PullFile) (*target, error) {
	x, err := p.c.index(ctx, f.Layers[0])
	if err != nil {
		return nil, fmt.Errorf("index of %s: %w", f.Name, err)
	}
	if x.Size() != f.Size || !x.Parent().IsZero() {
		return nil, fmt.Errorf("index of %s does not fit the manifest", f.Name)
	}
	t := &target{dir: p.dir, spec: f, index: x, bitmap: make([]byte, (x.Len()+7)/8)}
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

// create opens the partial file; an old one is kept only when the journal speaks of it.
func (t *target) create(resumed bool) error {
	flags := os.O_RDWR | os.O_CREATE
	if _, err := t.dir.Stat(t.spec.Name + partialSuffix); err != nil || !resumed {
		// The journal of another file must be gone before this one has any byte.
		if err := errors.Join(t.forget(), syncDir(t.dir)); err != nil {
			return err
		}
		clear(t.bitmap)
		flags |= os.O_TRUNC
	}
	f, err := t.dir.OpenFile(t.spec.Name+partialSuffix, flags, 0o644)
	if err != nil {
		return err
	}
	t.file = f
	return f.Truncate(t.index.Size())
}

func (t *target) close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// readJournal loads the bitmap; false when there is none for this layer.
func (t *target) readJournal() (bool, error) {
	raw, err := t.dir.ReadFile(t.spec.Name + journalSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	root := t.index.Root()
	bitmap, ok := bytes.CutPrefix(raw, root[:])
	if !ok || len(bitmap) != len(t.bitmap) {
		return false, nil
	}
	copy(t.bitmap, bitmap)
	if extra := t.index.Len() % 8; extra != 0 && len(bitmap) > 0 {
		t.bitmap[len(bitmap)-1] &= 1<<extra - 1
	}
	return true, nil
}

func (t *target) complete() bool {
	n := 0
	for _, b := range t.bitmap {
		n += bits.OnesCount8(b)
	}
	return n == t.index.Len()
}

func (t *target) has(i int) bool { return t.bitmap[i/8]&(1<<(i%8)) != 0 }

// have is the number of stored bytes whose frames are there.
func (t *target) have() int64 {
	var n int64
	for i := range t.index.Len() {
		if t.has(i) {
			n += int64(t.index.Frame(i).Stored)
		}
	}
	return n
}

// span is a range of consecutive frames to fetch: first to last-1.
type span struct {
	t           *target
	first, last int
}

// missing gives the frames that are not there, in spans of bounded size.
func (t *target) missing() []span {
	var out []span
	var size int64
	for i := range t.index.Len() {
		if t.has(i) {
			size = 0
			continue
		}
		n := int64(t.index.Frame(i).Stored)
		if size == 0 || size+n > spanBytes {
			out = append(out, span{t: t, first: i})
			size = 0
		}
		out[len(out)-1].last = i + 1
		size += n
	}
	return out
}

// wrote notes that a frame is written, and now and then makes that durable.
func (t *target) wrote(i int) error {
	n := int64(t.index.Frame(i).Stored)
	t.moved.Add(n)
	t.mu.Lock()
	t.bitmap[i/8] |= 1 << (i % 8)
	t.pending += int64(t.index.Frame(i).Raw)
	due := t.pending >= checkpointBytes
	t.mu.Unlock()
	if !due || !t.saving.TryLock() {
		return nil
	}
	defer t.saving.Unlock()
	return t.checkpointLocked()
}

// checkpoint puts the written frames and then the bitmap on stable storage.
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
	if err := blob.SyncData(t.file); err != nil {
		return fmt.Errorf("sync %s: %w", t.spec.Name, err)
	}
	// Written in place: bits only ever appear, so a torn write is an older bitmap in part.
	j, err := t.dir.OpenFile(t.spec.Name+journalSuffix, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	root := t.index.Root()
	_, err = j.WriteAt(append(root[:], bitmap...), 0)
	if err == nil {
		err = j.Sync()
	}
	return errors.Join(err, j.Close())
}

// rename gives the finished file its name.
func (t *target) rename() error {
	if t.file == nil {
		return nil
	}
	if !t.complete() {
		return fmt.Errorf("%s is not whole", t.spec.Name)
	}
	if err := t.file.Sync(); err != nil {
		return err
	}
	return t.dir.Rename(t.spec.Name+partialSuffix, t.spec.Name)
}

// forget removes the journal.
func (t *target) forget() error {
	err := t.dir.Remove(t.spec.Name + journalSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// index fetches and verifies the index of a layer.
func (c *Client) index(ctx context.Context, l api.PullLayer) (*blob.Index, error) {
	want, err := blob.ParseRoot(l.Root)
	if err != nil {
		return nil, err
	}
	if l.IndexLength < 1 || l.IndexLength > blob.MaxIndex || l.IndexOffset < 0 {
		return nil, fmt.Errorf("index of %d bytes at %d", l.IndexLength, l.IndexOffset)
	}
	var raw []byte
	attempt := 0
	err = c.retry(ctx, "index of "+l.Root, func() error {
		address := l.URLs[attempt%len(l.URLs)]
		attempt++
		return c.ranged(ctx, address, l.IndexOffset, l.IndexLength, func(body io.Reader) error {
			raw = make([]byte, l.IndexLength)
			if _, err := io.ReadFull(body, raw); err != nil {
				return fmt.Errorf("%w: %w", errTransient, err)
			}
			if blob.Root(sha256.Sum256(raw)) != want {
				return fmt.Errorf("%w: index is not what its root says", errTransient)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return blob.ParseIndex(raw)
}
