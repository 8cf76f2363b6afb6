package apfs

import (
	"cmp"
	"fmt"
	"io"
	"sync/atomic"
)

const (
	extentLengthMask = 1<<56 - 1 // the flags are above
	maxFileBytes     = 1 << 60   // bytes
	extentWindow     = 128       // extents of a file in memory at a time
)

// extent is a range of a file. Without a block it reads as zeros.
type extent struct {
	offset, length int64
	block          uint64
	tweak          uint64 // of an encrypted volume: the number from which its blocks count
}

func (e extent) end() int64 { return e.offset + e.length }

// dataStream reads a data stream. It is safe for concurrent use.
type dataStream struct {
	fs            *FS
	id            uint64 // of its extents
	size          int64
	recentExtents atomic.Pointer[[]extent] // the most recently used ones: in order, without gaps
}

// extentKey is a search key in the tree of extents of a sealed volume.
type extentKey struct{ id, offset uint64 }

func (k extentKey) compare(b []byte) int {
	if len(b) < 16 {
		return -1
	}
	if c := cmp.Compare(le.Uint64(b), k.id); c != 0 {
		return c
	}
	return cmp.Compare(le.Uint64(b[8:]), k.offset)
}

// ReadAt reads the stream, and zeros where it has holes.
func (s *dataStream) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errNegativeOffset
	}
	done := 0
	for done < len(p) {
		if off >= s.size {
			return done, io.EOF
		}
		e, err := s.extentAt(off)
		if err != nil {
			return done, err
		}
		part := p[done : done+int(min(int64(len(p)-done), min(e.end(), s.size)-off))]
		if e.block == 0 {
			clear(part)
		} else if err := s.fs.readExtent(part, e, off-e.offset); err != nil {
			return done, err
		}
		done += len(part)
		off += int64(len(part))
	}
	return done, nil
}

// extentAt returns the extent around an offset before the stream's end.
func (s *dataStream) extentAt(off int64) (extent, error) {
	if near := s.recentExtents.Load(); near != nil {
		if e, ok := extentCovering(*near, off); ok {
			return e, nil
		}
	}
	list, err := s.loadExtents(off)
	if err != nil {
		return extent{}, fmt.Errorf("read extents of stream %d: %w", s.id, err)
	}
	s.recentExtents.Store(&list)
	e, _ := extentCovering(list, off)
	return e, nil
}

func extentCovering(list []extent, off int64) (extent, bool) {
	if len(list) == 0 || off < list[0].offset || off >= list[len(list)-1].end() {
		return extent{}, false
	}
	low, high := 0, len(list)-1
	for low < high {
		mid := (low + high + 1) / 2
		if list[mid].offset <= off {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return list[low], true
}

// loadExtents reads the extents around an offset and after it; gaps between them are holes. The list
// covers the offset.
func (s *dataStream) loadExtents(off int64) ([]extent, error) {
	c, err := s.seek(off)
	if err != nil {
		return nil, err
	}
	var list []extent
	end := off // of what the list covers
	for ; err == nil && !c.atEnd() && len(list) < extentWindow; err = c.next() {
		e, ok := s.parseExtent(&c)
		if !ok {
			break
		}
		switch {
		case e.length == 0 || e.end() <= off:
			continue
		case e.offset < 0 || e.offset > maxFileBytes || len(list) > 0 && e.offset < end:
			return nil, damaged("one is at byte %d, with %d bytes", e.offset, e.length)
		}
		if e.offset > end {
			list = append(list, extent{offset: end, length: e.offset - end})
		}
		list = append(list, e)
		end = e.end()
	}
	if err != nil {
		return nil, err
	}
	if len(list) < extentWindow && end < s.size {
		list = append(list, extent{offset: end, length: s.size - end})
	}
	return list, nil
}

// seek returns a cursor at the extent that begins at or before an offset, or else at the next one.
func (s *dataStream) seek(off int64) (cursor, error) {
	t := s.fs.tree
	var to searchKey = recordKey{id: s.id, kind: recordExtent, hashOrOffset: uint64(off)}
	if s.fs.extentTree != nil {
		t, to = s.fs.extentTree, extentKey{s.id, uint64(off)}
	}
	c, ok, err := t.seekBefore(to)
	if err != nil {
		return c, err
	}
	if ok {
		if _, ok = s.parseExtent(&c); ok {
			return c, nil
		}
	}
	return t.seek(to)
}

// parseExtent reads the extent at a cursor; ok is false for records of other streams.
func (s *dataStream) parseExtent(c *cursor) (e extent, ok bool) {
	k, v := c.key(), c.value()
	if len(k) < 16 || len(v) < 16 {
		return e, false
	}
	id := le.Uint64(k)
	if s.fs.extentTree == nil {
		if id>>kindShift != recordExtent {
			return e, false
		}
		id &= idMask
	}
	e = extent{
		offset: int64(le.Uint64(k[8:])), length: int64(le.Uint64(v) & extentLengthMask), block: le.Uint64(v[8:]),
	}
	e.tweak = e.block
	if s.fs.extentTree == nil && len(v) >= 24 {
		e.tweak = le.Uint64(v[16:])
	}
	return e, id == s.id
}
