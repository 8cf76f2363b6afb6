package blob

import "bytes"

const (
	// batchBytes is the maximum number of bytes that are read at a time.
	batchBytes = 256 << 10
	// maxBatchRanges is the maximum number of ranges that are collected for one reader.
	maxBatchRanges = batchBytes / BlockSize
)

// changeSource produces the ranges of a disk that go into a layer.
type changeSource interface {
	// nextBatch fills the empty batch with the parts to be read next, in order; false at the end. One goroutine
	// calls it.
	nextBatch(s *rangeBatch) (bool, error)
	// readBatch reads the parts of a batch and appends the ranges that the layer stores of them, in order. Many
	// goroutines call it, each with batchBytes bytes of scratch.
	readBatch(s *rangeBatch, scratch []byte) error
}

// rangeBatch is a list of ranges on their way from the disk into frames.
type rangeBatch struct {
	buf     []byte        // of all parts with data, contiguous
	toRead  []readRange   // ranges to read
	toStore []storedRange // ranges that the layer stores
	loaded  chan error
}

// readRange is a range to be read.
type readRange struct {
	Change
	dataIn diskSet // of a comparison
}

// storedRange is a range that the layer stores, with its bytes when it is data.
type storedRange struct {
	Change
	data []byte
}

func newRangeBatch() *rangeBatch {
	return &rangeBatch{
		buf: make([]byte, 0, batchBytes), toRead: make([]readRange, 0, maxBatchRanges),
		toStore: make([]storedRange, 0, maxBatchRanges), loaded: make(chan error, 1),
	}
}

func (s *rangeBatch) reset() { s.buf, s.toRead, s.toStore = s.buf[:0], s.toRead[:0], s.toStore[:0] }

// full reports whether no part can be added.
func (s *rangeBatch) full() bool { return len(s.toRead) == cap(s.toRead) || s.freeBytes() == 0 }

// freeBytes is the number of data bytes that fit.
func (s *rangeBatch) freeBytes() int64 { return int64(cap(s.buf) - len(s.buf)) }

// add appends as much of a range as fits and returns the offset behind it.
func (s *rangeBatch) add(c Change, in diskSet) int64 {
	if c.Kind == ChangeData {
		c.Len = min(c.Len, s.freeBytes())
		s.buf = s.buf[:len(s.buf)+int(c.Len)]
	}
	s.toRead = append(s.toRead, readRange{c, in})
	return c.Off + c.Len
}

// eachRange calls do with each part and the buffer of its data.
func (s *rangeBatch) eachRange(do func(c readRange, data []byte) error) error {
	rest := s.buf
	for _, c := range s.toRead {
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

// storeBlocks stores the blocks of p, which is at off, as the kinds that kindOf returns, or leaves them out.
func (s *rangeBatch) storeBlocks(off int64, p []byte, kindOf func(block []byte, at int) (ChangeKind, bool)) {
	for at := 0; at < len(p); at += BlockSize {
		end := min(at+BlockSize, len(p))
		kind, ok := kindOf(p[at:end], at)
		if !ok {
			continue
		}
		c := Change{Off: off + int64(at), Len: int64(end - at), Kind: kind}
		if k := len(s.toStore) - 1; k >= 0 && at > 0 && s.toStore[k].Kind == kind &&
			s.toStore[k].Off+s.toStore[k].Len == c.Off {
			f := &s.toStore[k]
			f.Len += c.Len
			f.data = p[f.Off-off : end]
			continue
		}
		s.toStore = append(s.toStore, storedRange{c, p[at:end]})
	}
}

var zeroBlock [BlockSize]byte

// isZero reports whether a block, at most BlockSize long, has only zeros.
func isZero(block []byte) bool { return bytes.Equal(block, zeroBlock[:len(block)]) }
