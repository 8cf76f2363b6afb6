package blob

import (
	"cmp"
	"errors"
	"fmt"
	"io"
)

// Source is a file to be stored: its bytes, and the ranges with data.
type Source interface {
	// ReadAt reads the file; many goroutines call it.
	io.ReaderAt
	// NextData returns the next range at or behind off that may hold anything but zeros; start == end means
	// there is none. A source without this information returns off and its size.
	NextData(off int64) (start, end int64, err error)
}

// ranges walks the data ranges of a source, widened to whole blocks of a disk of size bytes.
type ranges struct {
	src        Source
	size       int64
	start, end int64 // of the newest range
}

// at returns the part behind off of the range that contains off, or the next range; both ends are size when
// there is none. off only grows.
func (r *ranges) at(off int64) (start, end int64, err error) {
	if off >= r.end && r.start < r.size && off < r.size {
		start, end, err = r.src.NextData(off)
		switch {
		case err != nil:
			return 0, 0, fmt.Errorf("find data: %w", err)
		case start >= end || start >= r.size:
			r.start, r.end = r.size, r.size
		case end <= off:
			return 0, 0, fmt.Errorf("find data: the range from %d to %d is before offset %d", start, end, off)
		default:
			r.start = start / BlockSize * BlockSize
			r.end = min(r.size, blocks(end)*BlockSize)
		}
	}
	return max(off, r.start), max(off, r.end), nil
}

// sourceFeed is the changeSource of an encoding of a whole file.
type sourceFeed struct {
	data ranges
	off  int64
}

var _ changeSource = (*sourceFeed)(nil)

func (f *sourceFeed) next(s *rangeBatch) (bool, error) {
	for !s.full() {
		start, end, err := f.data.at(f.off)
		if err != nil {
			return false, err
		}
		if start >= end {
			break
		}
		f.off = s.add(Change{Off: start, Len: end - start}, 0)
	}
	return len(s.parts) > 0, nil
}

// load reads the batch and leaves out blocks of zeros.
func (f *sourceFeed) load(s *rangeBatch, _ []byte) error {
	return s.each(func(c part, p []byte) error {
		if err := readDisk(f.data.src, p, c.Off); err != nil {
			return err
		}
		s.keep(c.Off, p, func(block []byte, _ int) (ChangeKind, bool) { return ChangeData, !isZero(block) })
		return nil
	})
}

// readDisk fills p. The early end of a truncated file is an error like others.
func readDisk(src io.ReaderAt, p []byte, off int64) error {
	n, err := src.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return fmt.Errorf("read at %d: %w", off+int64(n), cmp.Or(err, io.ErrUnexpectedEOF))
}
