package chunked

import (
	"container/list"
	"errors"
	"sync"
)

// Cache keeps the decoded chunks that were used last. It is safe for concurrent use.
type Cache[K comparable] struct {
	maxBytes int64

	mu      sync.Mutex // guards the fields below
	byKey   map[K]*list.Element
	recency *list.List // of *cacheEntry[K], the newest first
	bytes   int64      // of all entries that are decoded
}

// cacheEntry is a chunk that is decoded, or is being decoded.
type cacheEntry[K comparable] struct {
	key   K
	bytes int64 // counted in Cache.bytes; guarded by Cache.mu

	done chan struct{} // closed when data and err are set
	data []byte        // immutable
	err  error
}

var errAborted = errors.New("decoding was aborted")

// NewCache creates a cache of chunks with at most a number of bytes, or of one larger chunk.
func NewCache[K comparable](maxBytes int64) *Cache[K] {
	return &Cache[K]{maxBytes: maxBytes, byKey: map[K]*list.Element{}, recency: list.New()}
}

// Get returns a chunk, which callers must not change. If it is not cached, decode is called, once for all
// callers that want it. An error is not cached.
func (c *Cache[K]) Get(key K, decode func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	if e := c.byKey[key]; e != nil {
		c.recency.MoveToFront(e)
		c.mu.Unlock()
		entry := e.Value.(*cacheEntry[K])
		<-entry.done
		return entry.data, entry.err
	}
	entry := &cacheEntry[K]{key: key, done: make(chan struct{}), err: errAborted}
	e := c.recency.PushFront(entry)
	c.byKey[key] = e
	c.mu.Unlock()

	defer c.finish(e) // also when decode panics, so that no caller waits indefinitely
	entry.data, entry.err = decode()
	return entry.data, entry.err
}

// finish publishes an entry, and removes the oldest ones in excess of the limit.
func (c *Cache[K]) finish(e *list.Element) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := e.Value.(*cacheEntry[K])
	close(entry.done)
	if c.byKey[entry.key] != e {
		return // removed as the oldest while it was decoded
	}
	if entry.err != nil {
		c.remove(e)
		return
	}
	entry.bytes = int64(len(entry.data))
	c.bytes += entry.bytes
	for c.bytes > c.maxBytes && c.recency.Len() > 1 {
		c.remove(c.recency.Back())
	}
}

// remove removes an entry. mu is held.
func (c *Cache[K]) remove(e *list.Element) {
	entry := c.recency.Remove(e).(*cacheEntry[K])
	delete(c.byKey, entry.key)
	c.bytes -= entry.bytes
}
