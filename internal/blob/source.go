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

// dataRanges walks the data ranges of a source, widened to whole blocks of a disk of size bytes.
type dataRanges struct {
	src        Source
	size       int64
	start, end int64 // of the newest range
}

// rangeFrom returns the part behind off of the range that contains off, or the next range; both ends are size when
// there is none. off only grows.
func (r *dataRanges) rangeFrom(off int64) (start, end int64, err error) {
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
			r.end = min(r.size, blockCount(end)*BlockSize)
		}
	}
	return max(off, r.start), max(off, r.end), nil
}

// wholeFileSource is the changeSource of an encoding of a whole file.
type wholeFileSource struct {
	ranges  dataRanges
	nextOff int64
}

var _ changeSource = (*wholeFileSource)(nil)

func (f *wholeFileSource) nextBatch(s *rangeBatch) (bool, error) {
	for !s.full() {
		start, end, err := f.ranges.rangeFrom(f.nextOff)
		if err != nil {
			return false, err
		}
		if start >= end {
			break
		}
		f.nextOff = s.add(Change{Off: start, Len: end - start}, 0)
	}
	return len(s.toRead) > 0, nil
}

// readBatch reads the batch and leaves out blocks of zeros.
func (f *wholeFileSource) readBatch(s *rangeBatch, _ []byte) error {
	return s.eachRange(func(c readRange, p []byte) error {
		if err := readDisk(f.ranges.src, p, c.Off); err != nil {
			return err
		}
		s.storeBlocks(c.Off, p, func(block []byte, _ int) (ChangeKind, bool) { return ChangeData, !isZero(block) })
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
