package blob

import "bytes"

const (
	// spanSize is the maximum number of bytes that are read at a time.
	spanSize = 256 << 10
	// spanParts is the maximum number of ranges that are collected for one reader.
	spanParts = spanSize / BlockSize
)

// changeSource produces the ranges of a disk that go into a layer.
type changeSource interface {
	// next fills the empty batch with the parts to be read next, in order; false at the end. One goroutine
	// calls it.
	next(s *rangeBatch) (bool, error)
	// load reads the parts of a batch and appends the ranges that the layer stores of them, in order. Many
	// goroutines call it, each with spanSize bytes of scratch.
	load(s *rangeBatch, scratch []byte) error
}

// rangeBatch is a list of ranges on their way from the disk into frames.
type rangeBatch struct {
	data  []byte        // of all parts with data, contiguous
	parts []part        // ranges to read
	found []storedRange // ranges that the layer stores
	done  chan error
}

// part is a range to be read.
type part struct {
	Change
	sides sides // of a comparison
}

// storedRange is a range that the layer stores, with its bytes when it is data.
type storedRange struct {
	Change
	bytes []byte
}

func newRangeBatch() *rangeBatch {
	return &rangeBatch{
		data: make([]byte, 0, spanSize), parts: make([]part, 0, spanParts),
		found: make([]storedRange, 0, spanParts), done: make(chan error, 1),
	}
}

func (s *rangeBatch) reset() { s.data, s.parts, s.found = s.data[:0], s.parts[:0], s.found[:0] }

// full reports whether no part can be added.
func (s *rangeBatch) full() bool { return len(s.parts) == cap(s.parts) || s.room() == 0 }

// room is the number of data bytes that fit.
func (s *rangeBatch) room() int64 { return int64(cap(s.data) - len(s.data)) }

// add appends as much of a range as fits and returns the offset behind it.
func (s *rangeBatch) add(c Change, in sides) int64 {
	if c.Kind == ChangeData {
		c.Len = min(c.Len, s.room())
		s.data = s.data[:len(s.data)+int(c.Len)]
	}
	s.parts = append(s.parts, part{c, in})
	return c.Off + c.Len
}

// each calls do with each part and the buffer of its data.
func (s *rangeBatch) each(do func(c part, data []byte) error) error {
	rest := s.data
	for _, c := range s.parts {
		n := int64(0)
		if c.Kind == ChangeData {
			n = c.Len
		}
		if err := do(c, rest[:n:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// keep stores the blocks of p, which is at off, as the kinds that kindOf returns, or leaves them out.
func (s *rangeBatch) keep(off int64, p []byte, kindOf func(block []byte, at int) (ChangeKind, bool)) {
	for at := 0; at < len(p); at += BlockSize {
		end := min(at+BlockSize, len(p))
		kind, ok := kindOf(p[at:end], at)
		if !ok {
			continue
		}
		c := Change{Off: off + int64(at), Len: int64(end - at), Kind: kind}
		if k := len(s.found) - 1; k >= 0 && at > 0 && s.found[k].Kind == kind &&
			s.found[k].Off+s.found[k].Len == c.Off {
			f := &s.found[k]
			f.Len += c.Len
			f.bytes = p[f.Off-off : end]
			continue
		}
		s.found = append(s.found, storedRange{c, p[at:end]})
	}
}

var zeros [BlockSize]byte

// isZero reports whether a block, at most BlockSize long, has only zeros.
func isZero(block []byte) bool { return bytes.Equal(block, zeros[:len(block)]) }
