package inodefs

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Inodes are read in pages, larger than most blocks, since those that are needed together are
// stored together. Directory blocks are not: each is read once, and alone.
const (
	minPageBytes   = 16 << 10
	pageCacheBytes = 16 << 20 // of all cached pages
)

// Pages reads metadata, and caches what was used last. It is safe for concurrent use.
type Pages struct {
	r        io.ReaderAt
	size     int64 // size of r in bytes
	pageSize int64 // bytes
	maxPages int

	mu       sync.Mutex // guards the fields below
	byNumber map[int64]*list.Element
	recency  *list.List // of *page, the newest first
}

// page is immutable once it is in the list.
type page struct {
	number int64
	data   []byte
}

// NewPages caches the size bytes of r, which has blocks of some bytes.
func NewPages(r io.ReaderAt, size, block int64) *Pages {
	return NewPagesOf(r, size, max(minPageBytes, block))
}

// NewPagesOf caches the size bytes of r in pages of n bytes.
func NewPagesOf(r io.ReaderAt, size, n int64) *Pages {
	return &Pages{
		r: r, size: size, pageSize: n, maxPages: int(pageCacheBytes / n),
		byNumber: map[int64]*list.Element{}, recency: list.New(),
	}
}

// Get returns n bytes at off, all within one block. They must not be changed.
func (p *Pages) Get(off, n int64) ([]byte, error) {
	if off < 0 || off > p.size-n {
		return nil, Damaged("it refers to byte %d of %d", off, p.size)
	}
	b, err := p.loadPage(off / p.pageSize)
	if err != nil {
		return nil, err
	}
	within := off % p.pageSize
	if within+n > int64(len(b)) {
		return nil, Damaged("it refers to byte %d of %d", off, p.size)
	}
	return b[within : within+n : within+n], nil
}

// loadPage returns a page. Concurrent calls for one page may each read it.
func (p *Pages) loadPage(number int64) ([]byte, error) {
	p.mu.Lock()
	if e := p.byNumber[number]; e != nil {
		p.recency.MoveToFront(e)
		p.mu.Unlock()
		return e.Value.(*page).data, nil
	}
	p.mu.Unlock()
	b := make([]byte, min(p.pageSize, p.size-number*p.pageSize))
	if err := p.Read(b, number*p.pageSize); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byNumber[number] == nil {
		if p.recency.Len() >= p.maxPages {
			oldest := p.recency.Back()
			delete(p.byNumber, oldest.Value.(*page).number)
			p.recency.Remove(oldest)
		}
		p.byNumber[number] = p.recency.PushFront(&page{number, b})
	}
	return b, nil
}

// Read fills b, bypassing the cache.
func (p *Pages) Read(b []byte, off int64) error {
	if off < 0 || off > p.size-int64(len(b)) {
		return Damaged("it refers to byte %d of %d", off, p.size)
	}
	n, err := p.r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read at %d: %w", off, err)
}

// Size returns the size of what is cached in bytes.
func (p *Pages) Size() int64 { return p.size }

// ReadAt reads from what is cached, without the checks of Read.
func (p *Pages) ReadAt(b []byte, off int64) (int, error) { return p.r.ReadAt(b, off) }
