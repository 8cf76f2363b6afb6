package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// upload is one file of a session.
type upload struct {
	id   blob.Upload
	spec api.PushFile
	// chain is the parent chain of the file's layer, base first. For a file whose content is stored (same) it
	// is the chain of that content. It is immutable, and its layers are pinned.
	chain []layout.Layer

	indexing sync.Mutex // held while a step of the index is written

	mu      sync.Mutex      // guards the fields below
	parts   map[int64]*part // by offset; never overlapping
	flying  []*part         // being received
	index   blob.Digest     // digest of its index file; zero until that is received
	suspect bool            // parts were written by an earlier process: a crash may have lost their bytes

	// gate is held for reading during each write to the upload's file, and for writing to freeze it.
	gate   sync.RWMutex
	sealed bool // the file becomes a layer, or is one: it is not written any longer; guarded by gate
}

// part is a range of frames that was received and verified.
type part struct {
	off    int64
	length int64
	frames []blob.PartFrame
}

func (p *part) overlaps(q *part) bool { return p.off < q.off+q.length && q.off < p.off+p.length }

func (p *part) same(q *part) bool { return p.off == q.off && slices.Equal(p.frames, q.frames) }

func (u *upload) name(suffix string) string {
	return sessionPath(u.id.Session, strconv.Itoa(u.id.File)+suffix)
}

// hasReceived reports whether bytes of the file were received or are being received.
func (u *upload) hasReceived() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.parts) > 0 || len(u.flying) > 0 || !u.index.IsZero()
}

// same reports whether the file's content is stored: the client named it by Root.
func (u *upload) same() bool { return isSame(u.spec, u.chain) }

func isSame(f api.PushFile, chain []layout.Layer) bool {
	return len(chain) > 0 && chain[len(chain)-1].Name() == f.Root
}

// state returns the state of the file.
func (u *upload) state() api.PushFileState {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := api.PushFileState{Name: u.spec.Name, State: api.PushMissing}
	for _, off := range slices.Sorted(maps.Keys(u.parts)) {
		p := u.parts[off]
		out.Have = append(out.Have, api.PushPart{Offset: p.off, Length: p.length, Sum: blob.PartSum(p.frames)})
		out.State = api.PushResume
	}
	if !u.index.IsZero() {
		out.State = api.PushComplete
	}
	return out
}

// begin registers a part. Parts at the same offset must be equal while they are being received, since the last
// one overwrites the same bytes. Earlier parts that overlap and differ are forgotten, since they are
// overwritten now.
func (u *upload) begin(p *part) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.isSealed() {
		return u.closing()
	}
	if p.off < 0 || p.off > u.spec.Size-p.length {
		return farm.Invalid("off",
			"part of %d bytes at offset %d is outside of the layer of %s, which has at most %d bytes",
			p.length, p.off, u.spec.Name, u.spec.Size)
	}
	for _, q := range u.flying {
		if p.overlaps(q) && !p.same(q) {
			return farm.Errorf(farm.CodeBusy, "Upload of another part of %s at this offset in progress", u.spec.Name)
		}
	}
	for off, q := range u.parts {
		if p.overlaps(q) && !p.same(q) {
			delete(u.parts, off)
			u.index = blob.Digest{}
		}
	}
	u.flying = append(u.flying, p)
	return nil
}

// end removes a part from the parts in flight; ok reports that all its bytes are written.
func (u *upload) end(p *part, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.flying = slices.DeleteFunc(u.flying, func(q *part) bool { return q == p })
	if ok {
		u.parts[p.off] = p
	}
}

// seal ends all writing to the upload's file: parts in flight fail with their next frame. It may be called
// again. A later part is refused until unseal.
func (u *upload) seal() {
	u.gate.Lock()
	defer u.gate.Unlock()
	u.sealed = true
}

func (u *upload) isSealed() bool {
	u.gate.RLock()
	defer u.gate.RUnlock()
	return u.sealed
}

// closing is the error for a part that arrives while the upload is sealed.
func (u *upload) closing() error {
	return farm.Errorf(farm.CodeBusy, "All parts of %s have been received and are being combined", u.spec.Name)
}

func (u *upload) unseal() {
	u.gate.Lock()
	defer u.gate.Unlock()
	u.sealed = false
}

// sealGuard writes a part only while the upload is not sealed.
type sealGuard struct {
	*blob.PartReader
	u *upload
}

// WriteTo holds the gate during each frame.
func (g sealGuard) WriteTo(w io.Writer) (int64, error) {
	return g.PartReader.WriteTo(writerFunc(func(p []byte) (int, error) {
		g.u.gate.RLock()
		defer g.u.gate.RUnlock()
		if g.u.sealed {
			return 0, g.u.closing()
		}
		return w.Write(p)
	}))
}

var _ io.WriterTo = sealGuard{}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// matches reports whether the parts hold exactly the frames of an index.
func (u *upload) matches(x *blob.Index) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	frame, off := 0, int64(0)
	for _, start := range slices.Sorted(maps.Keys(u.parts)) {
		p := u.parts[start]
		if p.off != off || frame+len(p.frames) > x.Len() {
			return incomplete(u.spec.Name, off)
		}
		for _, f := range p.frames {
			if want := x.Frame(frame); f.Stored != want.Stored || f.Sum != want.Sum {
				return incomplete(u.spec.Name, off)
			}
			frame++
		}
		off += p.length
	}
	if frame != x.Len() {
		return incomplete(u.spec.Name, off)
	}
	return nil
}

// incomplete is the error for a client whose view of the session is wrong; it reads the state and sends again.
func incomplete(name string, off int64) error {
	return farm.Errorf(farm.CodeConflict,
		"The parts of %s do not match its frame index from byte %d on: send them again",
		name, off)
}

// recordPart appends a part to the part map on disk. The map is not synced: after a crash its parts are
// suspect and read again.
func (r *Registry) recordPart(u *upload, p *part) error {
	f, err := r.dir.Root().OpenFile(u.name(".map"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("record part: %w", err)
	}
	entry := append(binary.LittleEndian.AppendUint64(nil, uint64(p.off)), blob.PartHeader(p.frames)...)
	_, err = f.Write(entry) // one write: entries of parallel parts do not mix
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("record part: %w", err)
	}
	return nil
}

// loadUpload reads the part map and the digest of the index that an earlier process left. A truncated end of
// the map is a part that was not recorded.
func (r *Registry) loadUpload(u *upload) error {
	raw, err := r.dir.Root().ReadFile(u.name(".map"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	u.suspect = true
	for rest := bytes.NewReader(raw); rest.Len() > 8; {
		var off [8]byte
		_, _ = io.ReadFull(rest, off[:]) // there are more than 8 bytes
		head, err := blob.NewPartReader(rest)
		if err != nil {
			break
		}
		p := &part{off: int64(binary.LittleEndian.Uint64(off[:])), length: head.Length(), frames: head.Frames()}
		if u.begin(p) == nil {
			u.end(p, true)
		}
	}
	u.index, err = r.indexSum(u.name(indexWhole))
	return err
}

// recheck reads the parts of an earlier process again and forgets those whose bytes were lost.
func (r *Registry) recheck(ctx context.Context, u *upload) error {
	u.mu.Lock()
	suspect, parts := u.suspect, slices.Collect(maps.Values(u.parts))
	u.mu.Unlock()
	if !suspect {
		return nil
	}
	f, err := r.store.OpenUpload(ctx, u.id)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = nil, nil
	}
	if err != nil {
		return err
	}
	if f != nil {
		defer f.Close()
	}
	var lost []*part
	for _, p := range parts {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if f == nil || !intact(f, p) {
			lost = append(lost, p)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range lost {
		if u.parts[p.off] == p {
			delete(u.parts, p.off)
			u.index = blob.Digest{}
		}
	}
	u.suspect = false
	if len(lost) > 0 {
		return farm.Errorf(farm.CodeConflict, "%d parts of %s were lost in a crash: send them again", len(lost),
			u.spec.Name)
	}
	return nil
}

func intact(f io.ReaderAt, p *part) bool {
	off := p.off
	buf := make([]byte, blob.FrameSize)
	for _, frame := range p.frames {
		if n, _ := f.ReadAt(buf[:frame.Stored], off); n < frame.Stored || sha256.Sum256(buf[:n]) != frame.Sum {
			return false
		}
		off += int64(frame.Stored)
	}
	return true
}
