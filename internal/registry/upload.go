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
	id       blob.Upload
	pushFile api.PushFile
	// parentChain is the parent chain of the file's layer, base first. For a file whose content is stored (same) it
	// is the chain of that content. It is immutable, and its layers are pinned.
	parentChain []layout.Layer

	indexMu sync.Mutex // held while a step of the index is written

	mu           sync.Mutex              // guards the fields below
	parts        map[int64]*receivedPart // by offset; never overlapping
	inFlight     []*receivedPart         // being received
	indexDigest  blob.Digest             // digest of its index file; zero until that is received
	needsRecheck bool                    // parts were written by an earlier process: a crash may have lost their bytes

	// freezeMu is held for reading during each write to the upload's file, and for writing to freeze it.
	freezeMu sync.RWMutex
	frozen   bool // the file becomes a layer, or is one: it is not written any longer; guarded by gate
}

// receivedPart is a range of frames that was received and verified.
type receivedPart struct {
	off    int64
	bytes  int64
	frames []blob.PartFrame
	// decoded has what each frame decodes to; see blob.SumDecoded. It is empty when the registry accepts no such sums.
	decoded [][sha256.Size]byte
}

func (p *receivedPart) overlaps(q *receivedPart) bool {
	return p.off < q.off+q.bytes && q.off < p.off+p.bytes
}

func (p *receivedPart) equals(q *receivedPart) bool {
	return p.off == q.off && slices.Equal(p.frames, q.frames)
}

func (u *upload) filePath(suffix string) string {
	return sessionPath(u.id.PushSession, strconv.Itoa(u.id.FileIndex)+suffix)
}

// hasReceived reports whether bytes of the file were received or are being received.
func (u *upload) hasReceived() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.parts) > 0 || len(u.inFlight) > 0 || !u.indexDigest.IsZero()
}

// isStored reports whether the file's content is stored: the client named it by Root.
func (u *upload) isStored() bool { return isStoredFile(u.pushFile, u.parentChain) }

func isStoredFile(f api.PushFile, chain []layout.Layer) bool {
	return len(chain) > 0 && chain[len(chain)-1].ChainID() == f.Root
}

// apiState returns the state of the file.
func (u *upload) apiState() api.PushFileState {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := api.PushFileState{Name: u.pushFile.Name, State: api.PushMissing}
	for _, off := range slices.Sorted(maps.Keys(u.parts)) {
		p := u.parts[off]
		out.Have = append(out.Have, api.PushPart{Offset: p.off, Length: p.bytes, Sum: blob.PartSum(p.frames)})
		out.State = api.PushResume
	}
	if !u.indexDigest.IsZero() {
		out.State = api.PushComplete
	}
	return out
}

// beginPart registers a part. Parts at the same offset must be equal while they are being received, since the last
// one overwrites the same bytes. Earlier parts that overlap and differ are forgotten, since they are
// overwritten now.
func (u *upload) beginPart(p *receivedPart) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.isFrozen() {
		return u.frozenError()
	}
	if p.off < 0 || p.off > u.pushFile.Size-p.bytes {
		return farm.Invalid("off",
			"part of %d bytes at offset %d is outside of the layer of %s, which has at most %d bytes",
			p.bytes, p.off, u.pushFile.Name, u.pushFile.Size)
	}
	for _, q := range u.inFlight {
		if p.overlaps(q) && !p.equals(q) {
			return farm.Errorf(farm.CodeBusy, "Upload of another part of %s at this offset in progress",
				u.pushFile.Name)
		}
	}
	for off, q := range u.parts {
		if p.overlaps(q) && !p.equals(q) {
			delete(u.parts, off)
			u.indexDigest = blob.Digest{}
		}
	}
	u.inFlight = append(u.inFlight, p)
	return nil
}

// endPart removes a part from the parts in flight; ok reports that all its bytes are written.
func (u *upload) endPart(p *receivedPart, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inFlight = slices.DeleteFunc(u.inFlight, func(q *receivedPart) bool { return q == p })
	if ok {
		u.parts[p.off] = p
	}
}

// freeze ends all writing to the upload's file: parts in flight fail with their next frame. It may be called
// again. A later part is refused until unseal.
func (u *upload) freeze() {
	u.freezeMu.Lock()
	defer u.freezeMu.Unlock()
	u.frozen = true
}

func (u *upload) isFrozen() bool {
	u.freezeMu.RLock()
	defer u.freezeMu.RUnlock()
	return u.frozen
}

// frozenError is the error for a part that arrives while the upload is sealed.
func (u *upload) frozenError() error {
	return farm.Errorf(farm.CodeBusy, "All parts of %s have been received and are being combined", u.pushFile.Name)
}

func (u *upload) unfreeze() {
	u.freezeMu.Lock()
	defer u.freezeMu.Unlock()
	u.frozen = false
}

// freezeGuard writes a part only while the upload is not sealed.
type freezeGuard struct {
	*blob.PartReader
	upload *upload
	onData func(frame []byte) // nil: nothing; it is called with each frame
}

// WriteTo holds the gate during each frame.
func (g freezeGuard) WriteTo(w io.Writer) (int64, error) {
	return g.PartReader.WriteTo(writerFunc(func(p []byte) (int, error) {
		g.upload.freezeMu.RLock()
		defer g.upload.freezeMu.RUnlock()
		if g.upload.frozen {
			return 0, g.upload.frozenError()
		}
		if g.onData != nil {
			g.onData(p)
		}
		return w.Write(p)
	}))
}

var _ io.WriterTo = freezeGuard{}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// checkMatches reports whether the parts hold exactly the frames of an index.
func (u *upload) checkMatches(x *blob.Index) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	frame, off := 0, int64(0)
	for _, start := range slices.Sorted(maps.Keys(u.parts)) {
		p := u.parts[start]
		if p.off != off || frame+len(p.frames) > x.FrameCount() {
			return incompleteError(u.pushFile.Name, off)
		}
		for i, f := range p.frames {
			want := x.Frame(frame)
			if f.StoredSize != want.StoredSize || f.Sum != want.Sum {
				return incompleteError(u.pushFile.Name, off)
			}
			if want.Codec == blob.CodecZstdSummed && !u.hasDecodedLocked(p, i, want.RawSum) {
				return decodedSumError(u.pushFile.Name, len(p.decoded) > 0)
			}
			frame++
		}
		off += p.bytes
	}
	if frame != x.FrameCount() {
		return incompleteError(u.pushFile.Name, off)
	}
	return nil
}

// hasDecodedLocked reports whether frame i of a part decodes to bytes with a sum. Of parts of an earlier process that
// is known when they have been read again, which completeUpload does before it compares.
func (u *upload) hasDecodedLocked(p *receivedPart, i int, sum [sha256.Size]byte) bool {
	if len(p.decoded) == 0 {
		return u.needsRecheck
	}
	return p.decoded[i] == sum
}

// incompleteError is the error for a client whose view of the session is wrong; it reads the state and sends again.
func incompleteError(name string, off int64) error {
	return farm.Errorf(farm.CodeConflict,
		"The parts of %s do not match its frame index from byte %d on: send them again",
		name, off)
}

// decodedSumError is the error for an index with sums of decoded frames that are wrong, or that this registry does not
// accept.
func decodedSumError(name string, accepted bool) error {
	if !accepted {
		return farm.Invalid("index", "the frame index of %s has sums of decoded frames, which this registry does not "+
			"accept: push again", name)
	}
	return farm.Invalid("index", "the frame index of %s has sums of decoded frames that do not match them", name)
}

// recordPart appends a part to the part map on disk. The map is not synced: after a crash its parts are
// suspect and read again.
func (r *Registry) recordPart(u *upload, p *receivedPart) error {
	f, err := r.dir.Root().OpenFile(u.filePath(".map"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
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
	raw, err := r.dir.Root().ReadFile(u.filePath(".map"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	u.needsRecheck = true
	for rest := bytes.NewReader(raw); rest.Len() > 8; {
		var off [8]byte
		_, _ = io.ReadFull(rest, off[:]) // there are more than 8 bytes
		head, err := blob.NewPartReader(rest)
		if err != nil {
			break
		}
		p := &receivedPart{
			off: int64(binary.LittleEndian.Uint64(off[:])), bytes: head.DataBytes(),
			frames: head.Frames(),
		}
		if u.beginPart(p) == nil {
			u.endPart(p, true)
		}
	}
	u.indexDigest, err = r.indexFileDigest(u.filePath(indexSuffix))
	return err
}

// recheckParts reads the parts of an earlier process again and forgets those whose bytes were lost.
func (r *Registry) recheckParts(ctx context.Context, u *upload) error {
	u.mu.Lock()
	suspect, parts := u.needsRecheck, slices.Collect(maps.Values(u.parts))
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
	var lost []*receivedPart
	for _, p := range parts {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if f == nil {
			lost = append(lost, p)
			continue
		}
		var again receivedPart
		if !isIntact(f, p, r.sumDecoded(&again)) {
			lost = append(lost, p)
		}
		u.mu.Lock()
		p.decoded = again.decoded
		u.mu.Unlock()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range lost {
		if u.parts[p.off] == p {
			delete(u.parts, p.off)
			u.indexDigest = blob.Digest{}
		}
	}
	u.needsRecheck = false
	if len(lost) > 0 {
		return farm.Errorf(farm.CodeConflict, "%d parts of %s were lost in a crash: send them again", len(lost),
			u.pushFile.Name)
	}
	return nil
}

// isIntact reports whether the bytes of a part are there. onData is called with each frame; nil: nothing is.
func isIntact(f io.ReaderAt, p *receivedPart, onData func(frame []byte)) bool {
	off := p.off
	buf := make([]byte, blob.MaxFrameSize)
	for _, frame := range p.frames {
		if n, _ := f.ReadAt(buf[:frame.StoredSize], off); n < frame.StoredSize || sha256.Sum256(buf[:n]) != frame.Sum {
			return false
		}
		if onData != nil {
			onData(buf[:frame.StoredSize])
		}
		off += int64(frame.StoredSize)
	}
	return true
}
