package blob

import (
	"fmt"
	"io"
)

// ChangeKind is the kind of content in a range that a disk does not share with its parent.
type ChangeKind uint8

// The kinds of changes.
const (
	ChangeData    ChangeKind = iota // bytes, to be read
	ChangeZero                      // zeros
	ChangeDiscard                   // zeros; the guest discarded the range
)

// Change is a range of a disk that differs from its parent. Off and Len are multiples of BlockSize, except for
// Len in the change that ends the disk.
type Change struct {
	Off, Len int64
	Kind     ChangeKind
}

// Changes is a disk with known differences from a parent. It may report more than differs.
type Changes interface {
	// ReadAt reads the disk. It is called only for data ranges of NextChange, by many goroutines.
	io.ReaderAt
	// NextChange returns the next change that ends behind off, or false when there is none. It may be cut to
	// begin at off. One goroutine calls it, with an off that only grows.
	NextChange(off int64) (c Change, ok bool, err error)
}

// changeFeed is the changeSource of an encoding of changes.
type changeFeed struct {
	src  Changes
	size int64
	off  int64  // end of the newest change
	cur  Change // rest of the newest change
}

var _ changeSource = (*changeFeed)(nil)

// next collects changes until their data fill the batch.
func (f *changeFeed) next(s *rangeBatch) (bool, error) {
	for !s.full() {
		if f.cur.Len == 0 {
			if more, err := f.take(); err != nil || !more {
				return len(s.parts) > 0, err
			}
		}
		end := s.add(f.cur, 0)
		f.cur.Off, f.cur.Len = end, f.cur.Off+f.cur.Len-end
	}
	return true, nil
}

// take reads the next change and checks it.
func (f *changeFeed) take() (bool, error) {
	c, ok, err := f.src.NextChange(f.off)
	if err != nil {
		return false, fmt.Errorf("find changes: %w", err)
	}
	if !ok {
		return false, nil
	}
	end := c.Off + c.Len
	if c.Kind > ChangeDiscard || c.Off < 0 || c.Len <= 0 || end <= f.off || end > f.size || c.Off%BlockSize != 0 ||
		end%BlockSize != 0 && end != f.size {
		return false,
			fmt.Errorf(
				"invalid change of %d bytes and kind %d at offset %d: not aligned, outside of the disk of %d bytes, "+
					"or before offset %d",
				c.Len, c.Kind, c.Off, f.size, f.off)
	}
	if c.Off < f.off {
		c.Off, c.Len = f.off, end-f.off
	}
	f.cur, f.off = c, end
	return true, nil
}

// load reads the data of the batch. Blocks that are zero hide the parent's data at their offset.
func (f *changeFeed) load(s *rangeBatch, _ []byte) error {
	return s.each(func(c part, p []byte) error {
		if c.Kind != ChangeData {
			s.found = append(s.found, storedRange{Change: c.Change})
			return nil
		}
		if err := readDisk(f.src, p, c.Off); err != nil {
			return err
		}
		s.keep(c.Off, p, func(block []byte, _ int) (ChangeKind, bool) {
			if isZero(block) {
				return ChangeZero, true
			}
			return ChangeData, true
		})
		return nil
	})
}
