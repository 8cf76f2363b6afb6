package blob

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// sides describes which of two disks may hold data in a range.
type sides uint8

const (
	inDisk sides = 1 << iota
	inParent
)

// Compare finds where a disk of size bytes differs from its parent, by comparing blocks. A hole in both is not
// read, and the range behind the end of the parent counts as zero. Zeros of the disk are changes of kind
// ChangeZero, holes or not, so that equal disks yield equal layers. EncodeChanges compares with many readers;
// NextChange uses one reader.
func Compare(disk, parent Source, size int64) Changes {
	return &comparison{Source: disk, parent: parent, size: size}
}

type comparison struct {
	Source
	parent Source
	size   int64

	own *compareSteps // of NextChange
}

// NextChange compares until a change is found.
func (c *comparison) NextChange(off int64) (Change, bool, error) {
	if c.own == nil {
		c.own = &compareSteps{feed: newCompareFeed(c), span: newRangeBatch(), scratch: make([]byte, spanSize)}
	}
	return c.own.next(off)
}

// compareSteps compares one batch at a time.
type compareSteps struct {
	feed    *compareFeed
	span    *rangeBatch
	scratch []byte
	ready   []storedRange
}

func (c *compareSteps) next(off int64) (Change, bool, error) {
	for {
		for len(c.ready) > 0 {
			next := c.ready[0].Change
			if next.Off+next.Len > off {
				return next, true, nil
			}
			c.ready = c.ready[1:]
		}
		c.span.reset()
		if more, err := c.feed.next(c.span); err != nil || !more {
			return Change{}, false, err
		}
		if err := c.feed.load(c.span, c.scratch); err != nil {
			return Change{}, false, err
		}
		c.ready = c.span.found
	}
}

// compareFeed is the changeSource of an encoding by comparison.
type compareFeed struct {
	disk, parent ranges
	off          int64
}

var _ changeSource = (*compareFeed)(nil)

func newCompareFeed(c *comparison) *compareFeed {
	return &compareFeed{disk: ranges{src: c.Source, size: c.size}, parent: ranges{src: c.parent, size: c.size}}
}

// next collects the ranges in which either disk may hold data.
func (f *compareFeed) next(s *rangeBatch) (bool, error) {
	for !s.full() {
		c, in, err := f.rangeAt(f.off)
		if err != nil {
			return false, err
		}
		if c.Len == 0 {
			break
		}
		f.off = s.add(c, in)
	}
	return len(s.parts) > 0, nil
}

// rangeAt returns the next range in which the same of the two disks may hold data.
func (f *compareFeed) rangeAt(off int64) (c Change, in sides, err error) {
	ds, de, err := f.disk.at(off)
	if err != nil {
		return c, 0, err
	}
	ps, pe, err := f.parent.at(off)
	if err != nil {
		return c, 0, fmt.Errorf("parent: %w", err)
	}
	start, end := min(ds, ps), f.disk.size
	for _, r := range []struct {
		start, end int64
		in         sides
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

// load reads both disks, where they may hold data, and keeps the differences.
func (f *compareFeed) load(s *rangeBatch, scratch []byte) error {
	return s.each(func(c part, p []byte) error {
		old := scratch[:len(p)]
		if err := readSide(c.sides&inParent, old,
			func() error { return readParent(f.parent.src, old, c.Off) }); err != nil {
			return err
		}
		if err := readSide(c.sides&inDisk, p, func() error { return readDisk(f.disk.src, p, c.Off) }); err != nil {
			return err
		}
		s.keep(c.Off, p, func(block []byte, at int) (ChangeKind, bool) {
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

// readSide fills p from one of the disks, with zeros where it has a hole.
func readSide(in sides, p []byte, read func() error) error {
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
