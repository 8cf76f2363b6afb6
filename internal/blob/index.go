package blob

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sort"
)

// Sizes and limits of the format.
const (
	BlockSize      = 4096     // bytes of a block, the unit of runs
	MaxFrameSize   = 1 << 20  // most bytes of a frame, decoded or stored
	MaxContentSize = 1 << 46  // largest file behind a layer: 64 TiB
	MaxIndexSize   = 64 << 20 // largest index in bytes
	// MaxChainIndexSize bounds the indexes of one chain together: a reader of the chain holds all of them.
	MaxChainIndexSize = MaxIndexSize

	indexVersion = 1
)

// ErrCorrupt is in the chain of every error about bytes that violate the format or do not match their hash.
var ErrCorrupt = errors.New("layer is damaged")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Kind is the kind of content of a layer.
type Kind uint8

// The kinds.
const (
	KindFile  Kind = 0 // an opaque file: no parent, no zero runs
	KindDisk  Kind = 1 // the blocks of a raw disk; may rest on a parent layer
	KindState Kind = 2 // a saved state, otherwise as KindFile
)

// Codec is the encoding of a stored frame.
type Codec uint8

// The codecs.
const (
	CodecRaw        Codec = 0
	CodecZstd       Codec = 1
	CodecZstdSummed Codec = 2 // zstd, and the index has the sum of the decoded bytes as well
)

// Run is a range of the file in bytes. Off and Len are multiples of BlockSize, except for Len in the run that
// ends the file.
type Run struct{ Off, Len int64 }

// ZeroRun is a range that reads as zeros although the parent may hold data there.
type ZeroRun struct {
	Run
	Discard bool // the guest discarded the blocks
}

// Frame is the position and hash of one stored frame.
type Frame struct {
	Offset     int64 // in the layer file
	StoredSize int   // bytes there
	RawSize    int   // bytes when decoded: the sum of the frame's runs
	Codec      Codec
	Sum        [sha256.Size]byte // of the stored bytes
	RawSum     [sha256.Size]byte // of the decoded bytes, of CodecZstdSummed; see DecodedSum
}

// DecodedSum returns the sum of the decoded bytes; false: the index does not have it.
func (f Frame) DecodedSum() (sum [sha256.Size]byte, ok bool) {
	switch f.Codec {
	case CodecRaw:
		return f.Sum, true
	case CodecZstdSummed:
		return f.RawSum, true
	default:
		return sum, false
	}
}

// Index describes a layer. It is immutable and may be used from many goroutines. Runs are kept in their encoded
// form and decoded on demand, so that an index takes little more memory than its bytes.
type Index struct {
	kind          Kind
	contentSize   int64
	parent        Digest
	squashes      Digest
	encoded       []byte // encoded form
	digest        Digest
	frames        []compactFrame
	zeroRunGroups []runListPosition // of the zero runs, zeroRunGroupSize for each but the last
	storedBytes   int64             // bytes of all frames, stored
	decodedBytes  int64             // bytes of all frames, decoded
}

// compactFrame is the stored part of a frame. It is smaller than the shortest encoded form of one, so that even a
// malicious index takes at most twice its bytes.
type compactFrame struct {
	offset        int64 // in the layer file
	baseBlock     int64 // that the first gap of its runs counts from
	encodedOffset int32 // in the encoded form
	rawSize       int32 // bytes when decoded
}

// zeroRunGroupSize is how many zero runs share one recorded position, so that a run in a long list is found quickly.
const zeroRunGroupSize = 256

// runListPosition is the position of a list of runs in the encoded form, and the block that its first gap counts from.
type runListPosition struct {
	encodedOffset int
	runCount      int
	baseBlock     int64
}

// Digest is the layer's name.
func (x *Index) Digest() Digest { return x.digest }

// Kind is the layer's kind.
func (x *Index) Kind() Kind { return x.kind }

// ContentSize is the size of the file behind the layer in bytes.
func (x *Index) ContentSize() int64 { return x.contentSize }

// Parent is the ID of the chain that this layer changes; the zero Digest means zeros.
func (x *Index) Parent() Digest { return x.parent }

// Squashes returns the chain ID whose whole content this layer holds; the zero Digest means none.
func (x *Index) Squashes() Digest { return x.squashes }

// ChainID names the content of a chain that ends in this layer: the ID of the chain that it squashes, else its
// digest. A layer fits on another whose ChainID is its Parent.
func (x *Index) ChainID() Digest {
	if !x.squashes.IsZero() {
		return x.squashes
	}
	return x.digest
}

// Encoded is the encoded form; it must not be changed.
func (x *Index) Encoded() []byte { return x.encoded }

// FrameCount is the number of frames.
func (x *Index) FrameCount() int { return len(x.frames) }

// Frame returns frame i. Frames are in the order of the file and contiguous in the layer file.
func (x *Index) Frame(i int) Frame {
	ref := x.frames[i]
	d := indexDecoder{buf: x.encoded, pos: int(ref.encodedOffset)}
	f := Frame{Offset: ref.offset, StoredSize: int(d.uvarint()), Codec: Codec(d.uvarint()), RawSize: int(ref.rawSize)}
	copy(f.Sum[:], d.bytes(len(f.Sum)))
	if f.Codec == CodecZstdSummed {
		copy(f.RawSum[:], d.bytes(len(f.RawSum)))
	}
	return f
}

// runsPosition returns the position of the runs of frame i.
func (x *Index) runsPosition(i int) runListPosition {
	ref := x.frames[i]
	d := indexDecoder{buf: x.encoded, pos: int(ref.encodedOffset)}
	d.uvarint() // stored
	d.sums(Codec(d.uvarint()))
	count := int(d.uvarint())
	return runListPosition{encodedOffset: d.pos, runCount: count, baseBlock: ref.baseBlock}
}

// StoredBytes is the total size of all frames in the layer file, which is the offset of the index.
func (x *Index) StoredBytes() int64 { return x.storedBytes }

// DecodedBytes is the number of bytes that all frames hold when decoded.
func (x *Index) DecodedBytes() int64 { return x.decodedBytes }

// FileSize is the size of the layer file in bytes.
func (x *Index) FileSize() int64 { return x.storedBytes + int64(len(x.encoded)) + FooterSize }

// Runs returns the runs of frame i in order; the frame's decoded bytes are those of its runs, back to back.
func (x *Index) Runs(i int) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		w := dataWalk{index: x, nextFrame: i}
		for range x.runsPosition(i).runCount {
			if e, _ := w.next(); !yield(Run{e.off, e.end - e.off}) {
				return
			}
		}
	}
}

// ZeroRuns returns the zero and discard runs in order.
func (x *Index) ZeroRuns() iter.Seq[ZeroRun] {
	return func(yield func(ZeroRun) bool) {
		w := zeroWalk{index: x}
		for e, ok := w.next(); ok; e, ok = w.next() {
			if !yield(ZeroRun{Run{e.off, e.end - e.off}, e.discard}) {
				return
			}
		}
	}
}

// toByteRun converts blocks to bytes; the last block of the file may be cut.
func (x *Index) toByteRun(block, n int64) Run {
	off := block * BlockSize
	return Run{Off: off, Len: min((block+n)*BlockSize, x.contentSize) - off}
}

// findRunList returns which of n lists of runs may hold the byte at off: the last one that begins at or before it; 0
// when all begin behind it.
func (x *Index) findRunList(n int, list func(i int) runListPosition, off int64) int {
	return max(0, sort.Search(n, func(i int) bool {
		p := list(i)
		d := indexDecoder{buf: x.encoded, pos: p.encodedOffset}
		return (p.baseBlock+int64(d.uvarint()))*BlockSize > off
	})-1)
}

// blockCount is the number of blocks of a file.
func blockCount(size int64) int64 { return (size + BlockSize - 1) / BlockSize }

// indexDecoder reads the encoded form. After the first failure every read returns 0.
type indexDecoder struct {
	buf    []byte
	pos    int
	failed bool
}

// uvarint reads a number. Longer forms than needed are refused, so that equal content has one name.
func (d *indexDecoder) uvarint() uint64 {
	if d.failed {
		return 0
	}
	if d.pos < len(d.buf) && d.buf[d.pos] < 0x80 { // most numbers
		d.pos++
		return uint64(d.buf[d.pos-1])
	}
	v, n := binary.Uvarint(d.buf[d.pos:])
	if n <= 0 || d.buf[d.pos+n-1] == 0 {
		d.failed = true
		return 0
	}
	d.pos += n
	return v
}

// uvarintInRange reads a number between low and high.
func (d *indexDecoder) uvarintInRange(low, high int64) int64 {
	v := d.uvarint()
	if d.failed || v > uint64(high) || int64(v) < low {
		d.failed = true
		return low
	}
	return int64(v)
}

// sums skips the sums of a frame.
func (d *indexDecoder) sums(codec Codec) {
	d.bytes(sha256.Size)
	if codec == CodecZstdSummed {
		d.bytes(sha256.Size)
	}
}

func (d *indexDecoder) bytes(n int) []byte {
	if d.failed || len(d.buf)-d.pos < n {
		d.failed = true
		return make([]byte, n)
	}
	d.pos += n
	return d.buf[d.pos-n : d.pos]
}
