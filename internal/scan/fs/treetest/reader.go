package treetest

import (
	"bytes"
	"errors"
)

// ErrRead is the error of a Reader.
var ErrRead = errors.New("the disk cannot be read")

// Reader records the offsets of reads, and fails from a byte on. One goroutine uses it.
type Reader struct {
	Bytes    []byte
	FailFrom int64 // 0: it does not fail
	Offsets  []int64
}

// ReadAt implements io.ReaderAt.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	r.Offsets = append(r.Offsets, off)
	if r.FailFrom > 0 && off+int64(len(p)) > r.FailFrom {
		return 0, ErrRead
	}
	return bytes.NewReader(r.Bytes).ReadAt(p, off)
}
