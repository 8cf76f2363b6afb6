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

// deltaSource is the changeSource of an encoding of changes.
type deltaSource struct {
	changes   Changes
	diskSize  int64
	endOff    int64  // end of the newest change
	remaining Change // rest of the newest change
}

var _ changeSource = (*deltaSource)(nil)

// nextBatch collects changes until their data fill the batch.
func (f *deltaSource) nextBatch(s *rangeBatch) (bool, error) {
	for !s.full() {
		if f.remaining.Len == 0 {
			if more, err := f.nextChange(); err != nil || !more {
				return len(s.toRead) > 0, err
			}
		}
		end := s.add(f.remaining, 0)
		f.remaining.Off, f.remaining.Len = end, f.remaining.Off+f.remaining.Len-end
	}
	return true, nil
}

// nextChange reads the next change and checks it.
func (f *deltaSource) nextChange() (bool, error) {
	c, ok, err := f.changes.NextChange(f.endOff)
	if err != nil {
		return false, fmt.Errorf("find changes: %w", err)
	}
	if !ok {
		return false, nil
	}
	end := c.Off + c.Len
	if c.Kind > ChangeDiscard || c.Off < 0 || c.Len <= 0 || end <= f.endOff || end > f.diskSize ||
		c.Off%BlockSize != 0 ||
		end%BlockSize != 0 && end != f.diskSize {
		return false,
			fmt.Errorf(
				"invalid change of %d bytes and kind %d at offset %d: not aligned, outside of the disk of %d bytes, "+
					"or before offset %d",
				c.Len, c.Kind, c.Off, f.diskSize, f.endOff)
	}
	if c.Off < f.endOff {
		c.Off, c.Len = f.endOff, end-f.endOff
	}
	f.remaining, f.endOff = c, end
	return true, nil
}

// readBatch reads the data of the batch. Blocks that are zero hide the parent's data at their offset.
func (f *deltaSource) readBatch(s *rangeBatch, _ []byte) error {
	return s.eachRange(func(c readRange, p []byte) error {
		if c.Kind != ChangeData {
			s.toStore = append(s.toStore, storedRange{Change: c.Change})
			return nil
		}
		if err := readDisk(f.changes, p, c.Off); err != nil {
			return err
		}
		s.storeBlocks(c.Off, p, func(block []byte, _ int) (ChangeKind, bool) {
			if isZero(block) {
				return ChangeZero, true
			}
			return ChangeData, true
		})
		return nil
	})
}
