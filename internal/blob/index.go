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
	BlockSize = 4096     // bytes of a block, the unit of runs
	FrameSize = 1 << 20  // most bytes of a frame, decoded or stored
	MaxSize   = 1 << 46  // largest file behind a layer: 64 TiB
	MaxIndex  = 64 << 20 // largest index in bytes
	// MaxIndexes bounds the indexes of one chain together: a reader of the chain holds all of them.
	MaxIndexes = MaxIndex

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
	CodecRaw  Codec = 0
	CodecZstd Codec = 1
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
	Offset int64 // in the layer file
	Stored int   // bytes there
	Raw    int   // bytes when decoded: the sum of the frame's runs
	Codec  Codec
	Sum    [sha256.Size]byte // of the stored bytes
}

// Index describes a layer. It is immutable and may be used from many goroutines. Runs are kept in their encoded
// form and decoded on demand, so that an index takes little more memory than its bytes.
type Index struct {
	kind   Kind
	size   int64
	parent Digest
	stands Digest
	raw    []byte // encoded form
	root   Digest
	frames []frameRef
	zeros  []place // of the zero runs, zeroGroup for each but the last
	data   int64   // bytes of all frames, stored
	live   int64   // bytes of all frames, decoded
}

// frameRef is the stored part of a frame. It is smaller than the shortest encoded form of one, so that even a
// malicious index takes at most twice its bytes.
type frameRef struct {
	offset int64 // in the layer file
	block  int64 // that the first gap of its runs counts from
	at     int32 // in the encoded form
	raw    int32 // bytes when decoded
}

// zeroGroup is how many zero runs share one recorded position, so that a run in a long list is found quickly.
const zeroGroup = 256

// place is the position of a list of runs in the encoded form, and the block that its first gap counts from.
type place struct {
	at    int
	count int
	block int64
}

// Root is the layer's name.
func (x *Index) Root() Digest { return x.root }

// Kind is the layer's kind.
func (x *Index) Kind() Kind { return x.kind }

// Size is the size of the file behind the layer in bytes.
func (x *Index) Size() int64 { return x.size }

// Parent is the ID of the chain that this layer changes; the zero Digest means zeros.
func (x *Index) Parent() Digest { return x.parent }

// Squashes returns the chain ID whose whole content this layer holds; the zero Digest means none.
func (x *Index) Squashes() Digest { return x.stands }

// ChainID names the content of a chain that ends in this layer: the ID of the chain that it squashes, else its
// digest. A layer fits on another whose ChainID is its Parent.
func (x *Index) ChainID() Digest {
	if !x.stands.IsZero() {
		return x.stands
	}
	return x.root
}

// Bytes is the encoded form; it must not be changed.
func (x *Index) Bytes() []byte { return x.raw }

// Len is the number of frames.
func (x *Index) Len() int { return len(x.frames) }

// Frame returns frame i. Frames are in the order of the file and contiguous in the layer file.
func (x *Index) Frame(i int) Frame {
	ref := x.frames[i]
	d := decoder{buf: x.raw, at: int(ref.at)}
	f := Frame{Offset: ref.offset, Stored: int(d.uvarint()), Codec: Codec(d.uvarint()), Raw: int(ref.raw)}
	copy(f.Sum[:], d.bytes(len(f.Sum)))
	return f
}

// runs returns the position of the runs of frame i.
func (x *Index) runs(i int) place {
	ref := x.frames[i]
	d := decoder{buf: x.raw, at: int(ref.at)}
	d.uvarint() // stored
	d.uvarint() // codec
	d.bytes(sha256.Size)
	count := int(d.uvarint())
	return place{at: d.at, count: count, block: ref.block}
}

// DataBytes is the total size of all frames in the layer file, which is the offset of the index.
func (x *Index) DataBytes() int64 { return x.data }

// LiveBytes is the number of bytes that all frames hold when decoded.
func (x *Index) LiveBytes() int64 { return x.live }

// FileSize is the size of the layer file in bytes.
func (x *Index) FileSize() int64 { return x.data + int64(len(x.raw)) + FooterSize }

// Runs returns the runs of frame i in order; the frame's decoded bytes are those of its runs, back to back.
func (x *Index) Runs(i int) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		w := dataWalk{x: x, frame: i}
		for range x.runs(i).count {
			if e, _ := w.next(); !yield(Run{e.off, e.end - e.off}) {
				return
			}
		}
	}
}

// Zeros returns the zero and discard runs in order.
func (x *Index) Zeros() iter.Seq[ZeroRun] {
	return func(yield func(ZeroRun) bool) {
		w := zeroWalk{x: x}
		for e, ok := w.next(); ok; e, ok = w.next() {
			if !yield(ZeroRun{Run{e.off, e.end - e.off}, e.discard}) {
				return
			}
		}
	}
}

// run converts blocks to bytes; the last block of the file may be cut.
func (x *Index) run(block, n int64) Run {
	off := block * BlockSize
	return Run{Off: off, Len: min((block+n)*BlockSize, x.size) - off}
}

// find returns which of n lists of runs may hold the byte at off: the last one that begins at or before it; 0 when
// all begin behind it.
func (x *Index) find(n int, list func(i int) place, off int64) int {
	return max(0, sort.Search(n, func(i int) bool {
		p := list(i)
		d := decoder{buf: x.raw, at: p.at}
		return (p.block+int64(d.uvarint()))*BlockSize > off
	})-1)
}

// blocks is the number of blocks of a file.
func blocks(size int64) int64 { return (size + BlockSize - 1) / BlockSize }

// decoder reads the encoded form. After the first failure every read returns 0.
type decoder struct {
	buf []byte
	at  int
	bad bool
}

// uvarint reads a number. Longer forms than needed are refused, so that equal content has one name.
func (d *decoder) uvarint() uint64 {
	if d.bad {
		return 0
	}
	if d.at < len(d.buf) && d.buf[d.at] < 0x80 { // most numbers
		d.at++
		return uint64(d.buf[d.at-1])
	}
	v, n := binary.Uvarint(d.buf[d.at:])
	if n <= 0 || d.buf[d.at+n-1] == 0 {
		d.bad = true
		return 0
	}
	d.at += n
	return v
}

// upTo reads a number between low and high.
func (d *decoder) upTo(low, high int64) int64 {
	v := d.uvarint()
	if d.bad || v > uint64(high) || int64(v) < low {
		d.bad = true
		return low
	}
	return int64(v)
}

func (d *decoder) bytes(n int) []byte {
	if d.bad || len(d.buf)-d.at < n {
		d.bad = true
		return make([]byte, n)
	}
	d.at += n
	return d.buf[d.at-n : d.at]
}
