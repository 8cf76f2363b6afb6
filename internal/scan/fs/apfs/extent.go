package apfs

import (
	"cmp"
	"fmt"
	"io"
	"sync/atomic"
)

const (
	extentLength = 1<<56 - 1 // the flags are above
	mostFile     = 1 << 60   // bytes
	window       = 128       // extents of a file in memory at a time
)

// extent is a range of a file. Without a block it reads as zeros.
type extent struct {
	off, len int64
	block    uint64
}

func (e extent) end() int64 { return e.off + e.len }

// stream reads a data stream. It is safe for concurrent use.
type stream struct {
	f    *FS
	id   uint64 // of its extents
	size int64
	near atomic.Pointer[[]extent] // the most recently used ones: in order, without gaps
}

// extentKey is a search key in the tree of extents of a sealed volume.
type extentKey struct{ id, off uint64 }

func (k extentKey) compare(b []byte) int {
	if len(b) < 16 {
		return -1
	}
	if c := cmp.Compare(le.Uint64(b), k.id); c != 0 {
		return c
	}
	return cmp.Compare(le.Uint64(b[8:]), k.off)
}

// ReadAt reads the stream, and zeros where it has holes.
func (s *stream) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errNegative
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
		} else if err := s.f.d.read(part, e.block, off-e.off); err != nil {
			return done, err
		}
		done += len(part)
		off += int64(len(part))
	}
	return done, nil
}

// extentAt returns the extent around an offset before the stream's end.
func (s *stream) extentAt(off int64) (extent, error) {
	if near := s.near.Load(); near != nil {
		if e, ok := covering(*near, off); ok {
			return e, nil
		}
	}
	list, err := s.load(off)
	if err != nil {
		return extent{}, fmt.Errorf("the extents of stream %d: %w", s.id, err)
	}
	s.near.Store(&list)
	e, _ := covering(list, off)
	return e, nil
}

func covering(list []extent, off int64) (extent, bool) {
	if len(list) == 0 || off < list[0].off || off >= list[len(list)-1].end() {
		return extent{}, false
	}
	low, high := 0, len(list)-1
	for low < high {
		mid := (low + high + 1) / 2
		if list[mid].off <= off {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return list[low], true
}

// load reads the extents around an offset and after it; gaps between them are holes. The list
// covers the offset.
func (s *stream) load(off int64) ([]extent, error) {
	c, err := s.seek(off)
	if err != nil {
		return nil, err
	}
	var list []extent
	end := off // of what the list covers
	for ; err == nil && !c.end() && len(list) < window; err = c.next() {
		e, ok := s.parse(&c)
		if !ok {
			break
		}
		switch {
		case e.len == 0 || e.end() <= off:
			continue
		case e.off < 0 || e.off > mostFile || len(list) > 0 && e.off < end:
			return nil, damaged("one is at byte %d, with %d bytes", e.off, e.len)
		}
		if e.off > end {
			list = append(list, extent{off: end, len: e.off - end})
		}
		list = append(list, e)
		end = e.end()
	}
	if err != nil {
		return nil, err
	}
	if len(list) < window && end < s.size {
		list = append(list, extent{off: end, len: s.size - end})
	}
	return list, nil
}

// seek returns a cursor at the extent that begins at or before an offset, or else at the next one.
func (s *stream) seek(off int64) (cursor, error) {
	t := s.f.t
	var to target = recordKey{id: s.id, kind: recordExtent, num: uint64(off)}
	if s.f.extents != nil {
		t, to = s.f.extents, extentKey{s.id, uint64(off)}
	}
	c, ok, err := t.before(to)
	if err != nil {
		return c, err
	}
	if ok {
		if _, ok = s.parse(&c); ok {
			return c, nil
		}
	}
	return t.seek(to)
}

// parse reads the extent at a cursor; ok is false for records of other streams.
func (s *stream) parse(c *cursor) (e extent, ok bool) {
	k, v := c.key(), c.value()
	if len(k) < 16 || len(v) < 16 {
		return e, false
	}
	id := le.Uint64(k)
	if s.f.extents == nil {
		if id>>kindShift != recordExtent {
			return e, false
		}
		id &= idMask
	}
	return extent{off: int64(le.Uint64(k[8:])), len: int64(le.Uint64(v) & extentLength), block: le.Uint64(v[8:])},
		id == s.id
}
