package ext4

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
	leastPage = 16 << 10
	pageBytes = 16 << 20 // of all cached pages
)

// pages caches the most recently used metadata.
type pages struct {
	r    io.ReaderAt
	size int64 // size of r in bytes
	page int64 // bytes
	most int

	mu   sync.Mutex // guards the fields below
	at   map[int64]*list.Element
	used *list.List // of *page, the newest first
}

// page is immutable once it is in the list.
type page struct {
	number int64
	b      []byte
}

func newPages(r io.ReaderAt, size, block int64) *pages {
	n := max(leastPage, block)
	return &pages{r: r, size: size, page: n, most: int(pageBytes / n), at: map[int64]*list.Element{}, used: list.New()}
}

// get returns n bytes at off, all within one block. They must not be changed.
func (p *pages) get(off, n int64) ([]byte, error) {
	if off < 0 || off > p.size-n {
		return nil, damaged("it refers to byte %d of %d", off, p.size)
	}
	b, err := p.load(off / p.page)
	if err != nil {
		return nil, err
	}
	within := off % p.page
	if within+n > int64(len(b)) {
		return nil, damaged("it refers to byte %d of %d", off, p.size)
	}
	return b[within : within+n : within+n], nil
}

// load returns a page. Concurrent calls for one page may each read it.
func (p *pages) load(number int64) ([]byte, error) {
	p.mu.Lock()
	if e := p.at[number]; e != nil {
		p.used.MoveToFront(e)
		p.mu.Unlock()
		return e.Value.(*page).b, nil
	}
	p.mu.Unlock()
	b := make([]byte, min(p.page, p.size-number*p.page))
	if err := p.read(b, number*p.page); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at[number] == nil {
		if p.used.Len() >= p.most {
			oldest := p.used.Back()
			delete(p.at, oldest.Value.(*page).number)
			p.used.Remove(oldest)
		}
		p.at[number] = p.used.PushFront(&page{number, b})
	}
	return b, nil
}

// read fills b, bypassing the cache.
func (p *pages) read(b []byte, off int64) error {
	if off < 0 || off > p.size-int64(len(b)) {
		return damaged("it refers to byte %d of %d", off, p.size)
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
