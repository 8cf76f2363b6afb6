// Package qcow2 reads qcow2 images, and writes overlays whose whole layout is known before their
// first byte. Source of the format: QEMU's docs/interop/qcow2.txt.
//
// It starts no program and opens no file, so the names of other files in an image have no effect:
// they are returned to the caller, which decides. It does not change an image, and uses neither
// refcounts nor internal snapshots of one that it reads.
//
// Invariant: images are untrusted. Whatever its bytes are, reading one costs memory in proportion
// to its file at most and ends, and nothing but the given file is ever read.
package qcow2

import (
	"fmt"
	"io"
)

// Kind is the content that an image defines for a range of its disk.
type Kind uint8

// The kinds of a Range.
const (
	Absent Kind = iota // nothing: the layer below shows through
	Zero               // it reads as zeros
	Data               // it has bytes
)

// Range is a range of a disk that is of one kind.
type Range struct {
	Off, Len int64
	Kind     Kind
}

// End returns the offset after the range.
func (r Range) End() int64 { return r.Off + r.Len }

// Layer is a disk, or one layer of a disk. ReadAt reads zeros outside of Data.
type Layer interface {
	io.ReaderAt
	// Size returns the size of the disk in bytes.
	Size() int64
	// NextRange returns a range that begins at off, within the disk; the next one may be of the
	// same kind. It returns false at the end of the disk.
	NextRange(off int64) (r Range, ok bool, err error)
}

// NextData returns the first range of a layer at or after off that is Data. start == end means that
// there is none.
func NextData(l Layer, off int64) (start, end int64, err error) {
	for {
		r, ok, err := l.NextRange(off)
		if err != nil || !ok {
			return off, off, err
		}
		if r.Kind == Data {
			return r.Off, r.End(), nil
		}
		off = r.End()
	}
}

// damaged returns an error for an image that contradicts itself.
func damaged(format string, args ...any) error {
	return fmt.Errorf("damaged qcow2 image: %s", fmt.Sprintf(format, args...))
}
