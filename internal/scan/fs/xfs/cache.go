package xfs

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// cache keeps the values that were used last, in two generations. When the younger one is full, it becomes
// the older one, and what was not used since the last time is dropped.
type cache[K comparable, V any] struct {
	maxBytes int // of both generations
	sizeOf   func(V) int

	mu         sync.Mutex // guards the fields below
	young, old map[K]V
	youngBytes int
}

func newCache[K comparable, V any](maxBytes int, sizeOf func(V) int) *cache[K, V] {
	return &cache[K, V]{maxBytes: maxBytes, sizeOf: sizeOf, young: map[K]V{}}
}

func (c *cache[K, V]) get(k K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok = c.young[k]; ok {
		return v, true
	}
	if v, ok = c.old[k]; ok {
		c.putLocked(k, v)
	}
	return v, ok
}

// put adds a value that does not change. One that is larger than a generation is not kept.
func (c *cache[K, V]) put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(k, v)
}

// putLocked requires the lock.
func (c *cache[K, V]) putLocked(k K, v V) {
	size := c.sizeOf(v)
	if _, ok := c.young[k]; ok || size > c.maxBytes/2 {
		return
	}
	if c.youngBytes+size > c.maxBytes/2 {
		c.old, c.young, c.youngBytes = c.young, map[K]V{}, 0
	}
	c.young[k] = v
	c.youngBytes += size
}

// Inodes are read in pages, larger than most blocks, since those that are needed together are stored
// together. Directory blocks are not: each is read once, and alone.
const (
	minPageBytes   = 16 << 10
	pageCacheBytes = 16 << 20 // of all cached pages
)

// pageReader reads metadata, most of it from a cache.
type pageReader struct {
	r        io.ReaderAt
	size     int64 // of r in bytes
	pageSize int64 // bytes, a multiple of the size of a block
	pages    *cache[int64, []byte]
}

func newPageReader(r io.ReaderAt, size, blockSize int64) *pageReader {
	pages := newCache[int64](pageCacheBytes, func(b []byte) int { return len(b) })
	return &pageReader{r: r, size: size, pageSize: max(minPageBytes, blockSize), pages: pages}
}

// get returns n bytes at off, all within one block. They must not be changed.
func (p *pageReader) get(off, n int64) ([]byte, error) {
	number, within := off/p.pageSize, off%p.pageSize
	b, ok := p.pages.get(number)
	if !ok {
		if off < 0 || off > p.size-n {
			return nil, errPastEnd(off, p.size)
		}
		b = make([]byte, min(p.pageSize, p.size-number*p.pageSize))
		if err := p.read(b, number*p.pageSize); err != nil {
			return nil, err
		}
		p.pages.put(number, b)
	}
	if within+n > int64(len(b)) {
		return nil, errPastEnd(off, p.size)
	}
	return b[within : within+n : within+n], nil
}

// read fills b, without the cache.
func (p *pageReader) read(b []byte, off int64) error {
	if off < 0 || off > p.size-int64(len(b)) {
		return errPastEnd(off, p.size)
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

func errPastEnd(off, size int64) error { return damaged("it refers to byte %d of %d", off, size) }
