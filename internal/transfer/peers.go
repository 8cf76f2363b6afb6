package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/transfer/peerqueue"
)

// ErrNoPeer reports that no peer has what was requested, or that those that have it are busy.
var ErrNoPeer = errors.New("no peer has these frames now")

// ErrNotHere reports that a part of a file is not on this node, or not yet.
var ErrNotHere = errors.New("this part of the file is not on this node")

// HoldingUnit is the unit in which an incomplete file is described, in bytes of the file.
const HoldingUnit = 1 << 20

// Holding is what a node has of a version.
type Holding struct {
	Complete bool `json:"complete,omitempty"`
	// Files has, for each file of an incomplete version, one bit for each HoldingUnit of the file, lowest first, that
	// is set if all of the unit is here.
	Files map[string][]byte `json:"files,omitempty"`
}

// Has reports whether all of a file from off to end is here.
func (h Holding) Has(file string, off, end int64) bool {
	if h.Complete {
		return true
	}
	units := h.Files[file]
	if off < 0 || end <= off || (end-1)/HoldingUnit >= 8*int64(len(units)) {
		return false
	}
	for i := off / HoldingUnit; i <= (end-1)/HoldingUnit; i++ {
		if units[i/8]&(1<<(i%8)) == 0 {
			return false
		}
	}
	return true
}

// Peers are the other nodes that have parts of the version of a pull. Their bytes are not trusted.
type Peers interface {
	// Find reports whether a peer has a range of a file.
	Find(file string, off, end int64) peerqueue.Availability
	// Owns reports whether, of all nodes that pull the version now, this one fetches the part of a file at an offset
	// from the registry. The others wait for it.
	Owns(file string, off int64) bool
	// Read reads len(p) bytes into p. check is called with them; a peer whose bytes it refuses is not used for some
	// time. ErrNoPeer: no peer has them now.
	Read(ctx context.Context, r PeerRead, p []byte, check func([]byte) error) error
}

// PeerRead is a read of ranges of a file, one after the other.
type PeerRead struct {
	File string
	Runs []blob.Run
	// RegistryTime is how long the registry takes to send as many bytes now; 0: not known. A peer that takes much
	// longer is slow.
	RegistryTime time.Duration
}

// maxPeerFrames is how many frames are read from a peer with one request.
const maxPeerFrames = 4

// MaxPeerRead is the most bytes that are read from a peer with one request.
const MaxPeerRead = maxPeerFrames * blob.MaxFrameSize

// peerSpan is a span that is short enough for one request to a peer.
type peerSpan struct {
	fetchSpan
	off, end int64 // of the file, from its first to behind its last byte
	// atPeers reports whether peers may have it: the index has the sums of its decoded bytes, and no byte was replaced
	// by a later layer.
	atPeers bool
}

// queueForPeers returns the queue of a pull with peers.
func queueForPeers(peers Peers, spans []fetchSpan) *peerqueue.Queue[peerSpan] {
	return peerqueue.New(splitForPeers(spans), peerqueue.Options[peerSpan]{
		Find: func(s peerSpan) peerqueue.Availability {
			if !s.atPeers {
				return peerqueue.AtNoPeer
			}
			return peers.Find(s.target.name, s.off, s.end)
		},
		Owns: func(s peerSpan) bool { return !s.atPeers || peers.Owns(s.target.name, s.off) },
	})
}

// splitForPeers splits spans.
func splitForPeers(spans []fetchSpan) (out []peerSpan) {
	for _, s := range spans {
		for i := s.firstFrame; i < s.endFrame; i++ {
			last := len(out) - 1
			off, end, atPeers := s.target.wholeFrame(i)
			if last >= 0 && i > s.firstFrame && out[last].atPeers == atPeers &&
				i-out[last].firstFrame < maxPeerFrames {
				out[last].endFrame, out[last].end = i+1, end
				continue
			}
			part := fetchSpan{target: s.target, layer: s.layer, firstFrame: i, endFrame: i + 1}
			out = append(out, peerSpan{part, off, end, atPeers})
		}
	}
	return out
}

// wholeFrame returns the range of the file that frame i of the plan is in. whole reports whether all of the frame is
// there, so that its decoded bytes can be read from a file and be verified.
func (t *pullTarget) wholeFrame(i int) (off, end int64, whole bool) {
	_, f := t.frameAt(i)
	size := 0
	for piece := range t.plan.Placements(i) {
		if size == 0 {
			off = piece.DiskOff
		}
		if piece.FrameOff != size {
			return 0, 0, false
		}
		size, end = size+int(piece.Len), piece.DiskOff+piece.Len
	}
	_, summed := f.DecodedSum()
	return off, end, summed && size == f.RawSize
}

// fetchFromPeer reads a span from a peer, verifies it and writes it. After an error nothing of it was written, except
// when that failed.
func (f *fetcher) fetchFromPeer(ctx context.Context, s fetchSpan) error {
	var runs []blob.Run
	size := 0
	for i := s.firstFrame; i < s.endFrame; i++ {
		for piece := range s.target.plan.Placements(i) {
			last := len(runs) - 1
			if last >= 0 && runs[last].Off+runs[last].Len == piece.DiskOff {
				runs[last].Len += piece.Len
			} else {
				runs = append(runs, blob.Run{Off: piece.DiskOff, Len: piece.Len})
			}
			size += int(piece.Len)
		}
	}
	if f.decoded == nil {
		f.decoded = make([]byte, MaxPeerRead)
	}
	if size > len(f.decoded) {
		return ErrNoPeer
	}
	raw := f.decoded[:size]
	read := PeerRead{s.target.name, runs, f.pull.registryPace.timeOf(size)}
	if err := f.pull.opts.Peers.Read(ctx, read, raw, s.checkDecoded); err != nil {
		return err
	}
	f.pull.peerBytes.Add(int64(size))
	for i := s.firstFrame; i < s.endFrame; i++ {
		_, frame := s.target.frameAt(i)
		if err := f.writeFrame(s.target, i, raw[:frame.RawSize]); err != nil {
			return fatalError{err}
		}
		raw = raw[frame.RawSize:]
		f.pull.progress.addTransferred(int64(frame.StoredSize))
	}
	f.startWriteback(s.target)
	return nil
}

// checkDecoded compares the decoded bytes of a span with the sums in the index.
func (s fetchSpan) checkDecoded(raw []byte) error {
	for i := s.firstFrame; i < s.endFrame; i++ {
		_, frame := s.target.frameAt(i)
		if len(raw) < frame.RawSize {
			return fmt.Errorf("frame at %d is cut", frame.Offset)
		}
		if err := blob.CheckDecoded(frame, raw[:frame.RawSize]); err != nil {
			return err
		}
		raw = raw[frame.RawSize:]
	}
	return nil
}

// fatalError marks an error that another source does not fix.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// demandPeerTime is how long a read that a guest waits for may take at a peer before the registry is asked.
const demandPeerTime = 300 * time.Millisecond

// fetchAnywhere fetches a span from peers that have it, otherwise from the registry. A guest may wait for it.
func (f *fetcher) fetchAnywhere(ctx context.Context, s fetchSpan, guestWaits bool) error {
	peers := f.pull.opts.Peers
	if peers == nil {
		return f.fetch(ctx, s)
	}
	for _, part := range splitForPeers([]fetchSpan{s}) {
		if part.atPeers && peers.Find(s.target.name, part.off, part.end) == peerqueue.AtPeer {
			limited, cancel := ctx, context.CancelFunc(func() {})
			if guestWaits {
				limited, cancel = context.WithTimeout(ctx, demandPeerTime)
			}
			err := f.fetchFromPeer(limited, part.fetchSpan)
			cancel()
			if _, fatal := errors.AsType[fatalError](err); err == nil || fatal {
				if err != nil {
					return err
				}
				continue
			}
		}
		if err := f.fetch(ctx, part.fetchSpan); err != nil {
			return err
		}
	}
	return nil
}

// Partial is a version that is being pulled, as peers may read it. It may be used from many goroutines, also when the
// pull has ended: then nothing is here.
type Partial struct{ files map[string]*partialFile }

// partialFile is a file of which parts are missing.
type partialFile struct {
	target *pullTarget
	file   *os.File
}

// newPartial returns the files that are open.
func newPartial(targets []*pullTarget) *Partial {
	p := &Partial{map[string]*partialFile{}}
	for _, t := range targets {
		if t.file != nil {
			t.countMissing()
			p.files[t.name] = &partialFile{t, t.file}
		}
	}
	return p
}

// countMissing counts the missing frames of each unit.
func (t *pullTarget) countMissing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missingFrames = make([]int32, (t.plan.DiskSize()+HoldingUnit-1)/HoldingUnit)
	for i := range t.plan.FrameCount() {
		if !t.hasFrame(i) {
			t.addMissingLocked(i, 1)
		}
	}
}

// addMissingLocked adds n to the missing frames of each unit that frame i of the plan is in. mu is held.
func (t *pullTarget) addMissingLocked(i int, n int32) {
	if t.missingFrames == nil {
		return
	}
	counted := int64(-1)
	for piece := range t.plan.Placements(i) {
		for u := max(counted+1, piece.DiskOff/HoldingUnit); u <= (piece.DiskOff+piece.Len-1)/HoldingUnit; u++ {
			t.missingFrames[u] += n
			counted = u
		}
	}
}

// Holding returns what is here. Of an overlay, it may have bits of units that are in the files below it.
func (p *Partial) Holding() Holding {
	h := Holding{Files: map[string][]byte{}}
	for name, f := range p.files {
		f.target.mu.Lock()
		bits := make([]byte, (len(f.target.missingFrames)+7)/8)
		for u, missing := range f.target.missingFrames {
			if missing == 0 {
				bits[u/8] |= 1 << (u % 8)
			}
		}
		f.target.mu.Unlock()
		h.Files[name] = bits
	}
	return h
}

// ReadAt reads len(b) bytes of a file. ErrNotHere: they are not all here.
func (p *Partial) ReadAt(file string, b []byte, off int64) error {
	f := p.files[file]
	if f == nil || off < 0 || len(b) == 0 || off+int64(len(b)) > f.target.plan.DiskSize() ||
		!f.target.hasUnits(off, off+int64(len(b))) {
		return ErrNotHere
	}
	for len(b) > 0 {
		at, n := f.target.filePosition(off, int64(len(b)))
		if n == 0 { // it is in a file below the overlay
			return ErrNotHere
		}
		_, err := f.file.ReadAt(b[:n], at)
		if errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) {
			return ErrNotHere
		}
		if err != nil {
			return err
		}
		b, off = b[n:], off+n
	}
	return nil
}

// hasUnits reports whether no frame is missing in the units from off to end.
func (t *pullTarget) hasUnits(off, end int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for u := off / HoldingUnit; u <= (end-1)/HoldingUnit; u++ {
		if t.missingFrames[u] > 0 {
			return false
		}
	}
	return true
}

// OpenRuns returns the bytes of ranges of a file, one after the other. All are read before it returns, since the
// pull may close the file at any time.
func (p *Partial) OpenRuns(file string, runs []blob.Run) (io.ReadCloser, error) {
	var size int64
	for _, r := range runs {
		if size += r.Len; r.Len < 1 || size > MaxPeerRead {
			return nil, ErrNotHere
		}
	}
	all := make([]byte, size)
	at := all
	for _, r := range runs {
		if err := p.ReadAt(file, at[:r.Len], r.Off); err != nil {
			return nil, err
		}
		at = at[r.Len:]
	}
	return io.NopCloser(bytes.NewReader(all)), nil
}
