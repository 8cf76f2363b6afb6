package rpm

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

const (
	// maxHeaderBytes limits the header of one package. The largest, of packages with 50,000 files, have 7 MiB.
	maxHeaderBytes = 32 << 20
	// maxReadAhead is how many bytes are read in one call where pages follow each other.
	maxReadAhead = 256 << 10
	// maxPages limits the pages of which is noted whether they were read: 32 GiB of the smallest.
	maxPages = 1 << 26
)

var errCutOff = errors.New("the database is cut off")

// pageReader reads pages of a file, more in one call the longer they follow each other.
type pageReader struct {
	ctx  context.Context
	r    io.ReaderAt
	size int64 // bytes of the file

	buf   []byte // that begins at start
	start int64
	ahead int
}

// page returns n bytes at an offset, which are valid until the next call.
func (p *pageReader) page(off int64, n int) ([]byte, error) {
	if p.ctx.Err() != nil {
		return nil, context.Cause(p.ctx)
	}
	if off < 0 || n < 0 || off > p.size-int64(n) {
		return nil, fmt.Errorf("%w: %d bytes at %d of %d", errCutOff, n, off, p.size)
	}
	end := p.start + int64(len(p.buf))
	if off >= p.start && off+int64(n) <= end {
		return p.buf[off-p.start:][:n], nil
	}
	if off >= p.start && off <= end {
		p.ahead = min(p.ahead+max(p.ahead, n), maxReadAhead)
	} else {
		p.ahead = n
	}
	want := int(min(int64(max(p.ahead, n)), p.size-off))
	if cap(p.buf) < want {
		p.buf = make([]byte, want)
	}
	p.buf, p.start = p.buf[:want], off
	got, err := p.r.ReadAt(p.buf, off)
	p.buf = p.buf[:got]
	if got < n {
		if err == nil || errors.Is(err, io.EOF) {
			err = errCutOff
		}
		p.buf = p.buf[:0]
		return nil, err
	}
	return p.buf[:n], nil
}

// pageSet are the pages that were read, a bit each.
type pageSet []uint64

// newPageSet returns a set for the pages below a number.
func newPageSet(count int64) (pageSet, error) {
	if count > maxPages {
		return nil, fmt.Errorf("%w: the database has %d pages, the limit is %d", catalog.ErrTooLarge, count, maxPages)
	}
	return make(pageSet, count/64+1), nil
}

// add adds a page. It reports false for one that the set already has.
func (s pageSet) add(n int64) bool {
	word, bit := &s[n/64], uint64(1)<<(n%64)
	added := *word&bit == 0
	*word |= bit
	return added
}

// blobReader assembles headers from pages.
type blobReader struct {
	pageReader
	budget int64 // bytes of headers that may still be read
	blob   []byte
}

// begin begins a header of a size. It fails when that cannot be true.
func (b *blobReader) begin(size int64) error {
	if size > maxHeaderBytes {
		return fmt.Errorf("%w: a header has %d bytes, the limit is %d", catalog.ErrTooLarge, size, maxHeaderBytes)
	}
	if b.budget -= size; size < 0 || b.budget < 0 {
		return fmt.Errorf("%w: its headers are larger than the database", errDamaged)
	}
	b.blob = b.blob[:0]
	return nil
}

// errDamaged reports a database with a wrong structure.
var errDamaged = errors.New("the database is damaged")
