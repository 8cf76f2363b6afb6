package blob

import (
	"encoding/binary"
	"fmt"
)

// Builder collects the frames of a layer against zeros, in the order of the file, and makes its index.
type Builder struct {
	kind   Kind
	size   int64
	frames []byte // encoded
	count  int
	last   int64 // block behind the newest run
}

// NewBuilder begins the index of a layer of a file of size bytes.
func NewBuilder(kind Kind, size int64) *Builder { return &Builder{kind: kind, size: size} }

// Add appends a frame; f.Offset is not looked at. The runs are those of ParseIndex: in order, in whole
// blocks, none touching the one before it in the same frame.
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
	raw := binary.AppendUvarint(nil, indexVersion)
	raw = append(raw, byte(b.kind))
	raw = binary.AppendUvarint(raw, uint64(b.size))
	raw = append(raw, 0) // no parent
	raw = binary.AppendUvarint(raw, uint64(b.count))
	raw = append(raw, b.frames...)
	raw = append(raw, 0) // no zero runs
	x, err := ParseIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("build index: %w", err)
	}
	return x, nil
}
