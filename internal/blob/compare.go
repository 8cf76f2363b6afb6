package blob

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// diskSet is the set of those of two compared disks that may hold data in a range.
type diskSet uint8

const (
	inDisk diskSet = 1 << iota
	inParent
)

// Compare finds where a disk of size bytes differs from its parent, by comparing blocks. A hole in both is not
// read, and the range behind the end of the parent counts as zero. Zeros of the disk are changes of kind
// ChangeZero, holes or not, so that equal disks yield equal layers. EncodeChanges compares with many readers;
// NextChange uses one reader.
func Compare(disk, parent Source, size int64) Changes {
	return &diskComparison{Source: disk, parent: parent, diskSize: size}
}

type diskComparison struct {
	Source
	parent   Source
	diskSize int64

	comparer *batchComparer // of NextChange
}

// NextChange compares until a change is found.
func (c *diskComparison) NextChange(off int64) (Change, bool, error) {
	if c.comparer == nil {
		c.comparer = &batchComparer{source: newCompareSource(c), batch: newRangeBatch(), scratch: make([]byte,
			batchBytes)}
	}
	return c.comparer.next(off)
}

// batchComparer compares one batch at a time.
type batchComparer struct {
	source  *compareSource
	batch   *rangeBatch
	scratch []byte
	pending []storedRange
}

func (c *batchComparer) next(off int64) (Change, bool, error) {
	for {
		for len(c.pending) > 0 {
			next := c.pending[0].Change
			if next.Off+next.Len > off {
				return next, true, nil
			}
			c.pending = c.pending[1:]
		}
		c.batch.reset()
		if more, err := c.source.nextBatch(c.batch); err != nil || !more {
			return Change{}, false, err
		}
		if err := c.source.readBatch(c.batch, c.scratch); err != nil {
			return Change{}, false, err
		}
		c.pending = c.batch.toStore
	}
}

// compareSource is the changeSource of an encoding by comparison.
type compareSource struct {
	disk, parent dataRanges
	nextOff      int64
}

var _ changeSource = (*compareSource)(nil)

func newCompareSource(c *diskComparison) *compareSource {
	return &compareSource{
		disk: dataRanges{src: c.Source, size: c.diskSize}, parent: dataRanges{src: c.parent, size: c.diskSize},
	}
}

// nextBatch collects the ranges in which either disk may hold data.
func (f *compareSource) nextBatch(s *rangeBatch) (bool, error) {
	for !s.full() {
		c, in, err := f.nextRange(f.nextOff)
		if err != nil {
			return false, err
		}
		if c.Len == 0 {
			break
		}
		f.nextOff = s.add(c, in)
	}
	return len(s.toRead) > 0, nil
}

// nextRange returns the next range in which the same of the two disks may hold data.
func (f *compareSource) nextRange(off int64) (c Change, in diskSet, err error) {
	ds, de, err := f.disk.rangeFrom(off)
	if err != nil {
		return c, 0, err
	}
	ps, pe, err := f.parent.rangeFrom(off)
	if err != nil {
		return c, 0, fmt.Errorf("parent: %w", err)
	}
	start, end := min(ds, ps), f.disk.size
	for _, r := range []struct {
		start, end int64
		in         diskSet
	}{{ds, de, inDisk}, {ps, pe, inParent}} {
		switch {
		case r.start > start:
			end = min(end, r.start)
		case r.end > start:
			end = min(end, r.end)
			in |= r.in
		}
	}
	if in == 0 {
		return Change{}, 0, nil
	}
	return Change{Off: start, Len: end - start}, in, nil
}

// readBatch reads both disks, where they may hold data, and keeps the differences.
func (f *compareSource) readBatch(s *rangeBatch, scratch []byte) error {
	return s.eachRange(func(c readRange, p []byte) error {
		old := scratch[:len(p)]
		if err := readIfPresent(c.dataIn&inParent, old,
			func() error { return readParent(f.parent.src, old, c.Off) }); err != nil {
			return err
		}
		if err := readIfPresent(c.dataIn&inDisk, p,
			func() error { return readDisk(f.disk.src, p, c.Off) }); err != nil {
			return err
		}
		s.storeBlocks(c.Off, p, func(block []byte, at int) (ChangeKind, bool) {
			if bytes.Equal(block, old[at:at+len(block)]) {
				return 0, false
			}
			if isZero(block) {
				return ChangeZero, true
			}
			return ChangeData, true
		})
		return nil
	})
}

// readIfPresent fills p from one of the disks, with zeros where it has a hole.
func readIfPresent(in diskSet, p []byte, read func() error) error {
	if in == 0 {
		clear(p)
		return nil
	}
	return read()
}

// readParent fills p; zeros follow the end of the parent.
func readParent(src io.ReaderAt, p []byte, off int64) error {
	n, err := src.ReadAt(p, off)
	if n < len(p) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read parent at %d: %w", off+int64(n), err)
	}
	clear(p[n:])
	return nil
}
