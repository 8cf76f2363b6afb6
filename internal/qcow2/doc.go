// Package qcow2 reads qcow2 images, and writes overlays whose whole layout is known
// before their first byte. Source of the format: QEMU's docs/interop/qcow2.txt.
//
// It starts no program and opens no file, so an image that names others leads nowhere:
// what one names is told to the caller, who decides. It does not change an image, and
// knows neither refcounts nor internal snapshots of one that it reads.
//
// Invariant: an image comes from outside. Whatever its bytes say, reading one costs
// memory in proportion to its file at most and ends, and nothing but the given file is
// ever read.
package qcow2

import (
	"fmt"
	"io"
)

// Kind says what an image knows of a range of its disk.
type Kind uint8

// The kinds of a Range.
const (
	Absent Kind = iota // nothing: what is below the image shows
	Zero               // it reads as zeros
	Data               // it holds bytes
)

// Range is a range of a disk that is of one kind.
type Range struct {
	Off, Len int64
	Kind     Kind
}

// End is the first byte behind the range.
func (r Range) End() int64 { return r.Off + r.Len }

// Layer is a disk, or a part of one that is on others. ReadAt gives zeros for
// what is not Data.
type Layer interface {
	io.ReaderAt
	// Size is the number of bytes of the disk.
	Size() int64
	// NextRange returns a range that begins at off, within the disk; the one behind it
	// may be of the same kind. It is false at the end of the disk.
	NextRange(off int64) (r Range, ok bool, err error)
}

// NextData returns the next range of a layer at or behind off that is Data. start == end
// means that there is none.
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

// damaged says that an image contradicts itself.
func damaged(format string, args ...any) error {
	return fmt.Errorf("the qcow2 image is damaged: %s", fmt.Sprintf(format, args...))
}
