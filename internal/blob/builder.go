package blob

import (
	"encoding/binary"
	"fmt"
)

// Values of the parent field of an index.
const (
	parentNone     = 0
	parentChainID  = 1 // the digest that follows is the parent
	parentSquashes = 2 // rests on zeros and holds the whole chain whose ID follows
)

// EncodeOptions configures the encoding of a file into a layer.
type EncodeOptions struct {
	Kind     Kind
	Size     int64  // bytes of the file
	Workers  int    // goroutines that compress; 0 means one for each processor, at most 4
	Parent   Digest // ID of the chain that the layer changes; zero: it rests on zeros
	Squashes Digest // ID of the chain that the layer squashes; only without a parent
	// DecodedSums adds the sums by which nodes verify what they read from each other. Programs that know no
	// CodecZstdSummed cannot read the layer.
	DecodedSums bool
}

// validate refuses options that no index can represent.
func (o EncodeOptions) validate() error {
	parent, stands := !o.Parent.IsZero(), !o.Squashes.IsZero()
	switch {
	case o.Size < 0 || o.Size > MaxContentSize:
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
	opts          EncodeOptions
	encodedFrames []byte // encoded
	frameCount    int
	endBlock      int64 // end of the newest run, in blocks
	zeroRuns      zeroRunEncoder
}

// NewBuilder begins the index of a layer.
func NewBuilder(o EncodeOptions) *Builder { return &Builder{opts: o} }

// Add appends a frame; it ignores f.Offset. The runs are those of ParseIndex: in order, in whole blocks, none
// touching the one before it in the same frame.
func (b *Builder) Add(f Frame, runs []Run) {
	b.encodedFrames = binary.AppendUvarint(b.encodedFrames, uint64(f.StoredSize))
	b.encodedFrames = append(b.encodedFrames, byte(f.Codec))
	b.encodedFrames = append(b.encodedFrames, f.Sum[:]...)
	if f.Codec == CodecZstdSummed {
		b.encodedFrames = append(b.encodedFrames, f.RawSum[:]...)
	}
	b.encodedFrames = binary.AppendUvarint(b.encodedFrames, uint64(len(runs)))
	for _, r := range runs {
		start, n := r.Off/BlockSize, blockCount(r.Len)
		b.encodedFrames = binary.AppendUvarint(b.encodedFrames, uint64(start-b.endBlock))
		b.encodedFrames = binary.AppendUvarint(b.encodedFrames, uint64(n))
		b.endBlock = start + n
	}
	b.frameCount++
}

// Index finishes the index.
func (b *Builder) Index() (*Index, error) {
	if err := b.opts.validate(); err != nil {
		return nil, err
	}
	raw := binary.AppendUvarint(nil, indexVersion)
	raw = append(raw, byte(b.opts.Kind))
	raw = binary.AppendUvarint(raw, uint64(b.opts.Size))
	switch {
	case !b.opts.Parent.IsZero():
		raw = append(append(raw, parentChainID), b.opts.Parent[:]...)
	case !b.opts.Squashes.IsZero():
		raw = append(append(raw, parentSquashes), b.opts.Squashes[:]...)
	default:
		raw = append(raw, parentNone)
	}
	raw = binary.AppendUvarint(raw, uint64(b.frameCount))
	raw = append(raw, b.encodedFrames...)
	raw = b.zeroRuns.appendTo(raw)
	if len(raw) > MaxIndexSize {
		return nil, fmt.Errorf("the layer has more frames than fit into a frame index of %d MiB", MaxIndexSize>>20)
	}
	x, err := ParseIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("build frame index: %w", err)
	}
	return x, nil
}

// zeroRunEncoder is the encoded form of zero runs. The newest one is not yet encoded, since the next may extend it.
type zeroRunEncoder struct {
	encoded  []byte
	runCount int
	endBlock int64 // end of the newest encoded run, in blocks
	pending  ZeroRun
}

func (l *zeroRunEncoder) add(z ZeroRun) {
	if l.pending.Len > 0 && l.pending.Off+l.pending.Len == z.Off && l.pending.Discard == z.Discard {
		l.pending.Len += z.Len
		return
	}
	l.flush()
	l.pending = z
}

func (l *zeroRunEncoder) flush() {
	if l.pending.Len == 0 {
		return
	}
	start, n := l.pending.Off/BlockSize, blockCount(l.pending.Len)
	code := uint64(n) << 1
	if l.pending.Discard {
		code |= 1
	}
	l.encoded = binary.AppendUvarint(l.encoded, uint64(start-l.endBlock))
	l.encoded = binary.AppendUvarint(l.encoded, code)
	l.endBlock = start + n
	l.runCount++
	l.pending = ZeroRun{}
}

func (l *zeroRunEncoder) appendTo(b []byte) []byte {
	l.flush()
	return append(binary.AppendUvarint(b, uint64(l.runCount)), l.encoded...)
}
