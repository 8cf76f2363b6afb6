package blob

import (
	"encoding/binary"
	"fmt"
)

// Values of the parent field of an index.
const (
	restsOnZeros   = 0
	restsOnParent  = 1 // the digest that follows is the parent
	standsForChain = 2 // rests on zeros and holds the whole chain whose ID follows
)

// EncodeOptions configures the encoding of a file into a layer.
type EncodeOptions struct {
	Kind      Kind
	Size      int64  // bytes of the file
	Workers   int    // goroutines that compress; 0 means one for each processor, at most 4
	Parent    Digest // ID of the chain that the layer changes; zero: it rests on zeros
	StandsFor Digest // ID of the chain that the layer squashes; only without a parent
}

// check refuses options that no index can represent.
func (o EncodeOptions) check() error {
	parent, stands := !o.Parent.IsZero(), !o.StandsFor.IsZero()
	switch {
	case o.Size < 0 || o.Size > MaxSize:
		return fmt.Errorf("layer size %d bytes is out of range", o.Size)
	case (parent || stands) && o.Kind != KindDisk:
		return fmt.Errorf("only a disk layer can have a parent chain or replace one")
	case parent && stands:
		return fmt.Errorf("a layer with a parent chain cannot replace a chain")
	}
	return nil
}

// Builder collects the frames and zero runs of a layer, each in the order of the file, and makes its index.
type Builder struct {
	o      EncodeOptions
	frames []byte // encoded
	count  int
	last   int64 // end of the newest run, in blocks
	zeros  zeroList
}

// NewBuilder begins the index of a layer.
func NewBuilder(o EncodeOptions) *Builder { return &Builder{o: o} }

// Add appends a frame; it ignores f.Offset. The runs are those of ParseIndex: in order, in whole blocks, none
// touching the one before it in the same frame.
func (b *Builder) Add(f Frame, runs []Run) {
	b.frames = binary.AppendUvarint(b.frames, uint64(f.Stored))
	b.frames = append(b.frames, byte(f.Codec))
	b.frames = append(b.frames, f.Sum[:]...)
	b.frames = binary.AppendUvarint(b.frames, uint64(len(runs)))
	for _, r := range runs {
		start, n := r.Off/BlockSize, blocks(r.Len)
		b.frames = binary.AppendUvarint(b.frames, uint64(start-b.last))
		b.frames = binary.AppendUvarint(b.frames, uint64(n))
		b.last = start + n
	}
	b.count++
}

// Index finishes the index.
func (b *Builder) Index() (*Index, error) {
	if err := b.o.check(); err != nil {
		return nil, err
	}
	raw := binary.AppendUvarint(nil, indexVersion)
	raw = append(raw, byte(b.o.Kind))
	raw = binary.AppendUvarint(raw, uint64(b.o.Size))
	switch {
	case !b.o.Parent.IsZero():
		raw = append(append(raw, restsOnParent), b.o.Parent[:]...)
	case !b.o.StandsFor.IsZero():
		raw = append(append(raw, standsForChain), b.o.StandsFor[:]...)
	default:
		raw = append(raw, restsOnZeros)
	}
	raw = binary.AppendUvarint(raw, uint64(b.count))
	raw = append(raw, b.frames...)
	raw = b.zeros.append(raw)
	if len(raw) > MaxIndex {
		return nil, fmt.Errorf("the layer has more frames than fit into a frame index of %d MiB", MaxIndex>>20)
	}
	x, err := ParseIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("build frame index: %w", err)
	}
	return x, nil
}

// zeroList is the encoded form of zero runs. The newest one is not yet encoded, since the next may extend it.
type zeroList struct {
	encoded []byte
	count   int
	last    int64 // end of the newest encoded run, in blocks
	held    ZeroRun
}

func (l *zeroList) add(z ZeroRun) {
	if l.held.Len > 0 && l.held.Off+l.held.Len == z.Off && l.held.Discard == z.Discard {
		l.held.Len += z.Len
		return
	}
	l.flush()
	l.held = z
}

func (l *zeroList) flush() {
	if l.held.Len == 0 {
		return
	}
	start, n := l.held.Off/BlockSize, blocks(l.held.Len)
	code := uint64(n) << 1
	if l.held.Discard {
		code |= 1
	}
	l.encoded = binary.AppendUvarint(l.encoded, uint64(start-l.last))
	l.encoded = binary.AppendUvarint(l.encoded, code)
	l.last = start + n
	l.count++
	l.held = ZeroRun{}
}

func (l *zeroList) append(b []byte) []byte {
	l.flush()
	return append(binary.AppendUvarint(b, uint64(l.count)), l.encoded...)
}
