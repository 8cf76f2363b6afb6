package vulndb

import (
	"container/list"
	"sync"
)

const (
	maxCacheBytes       = 2 << 20  // of cached blocks
	maxCachedBlockBytes = 64 << 10 // larger blocks are not cached
)

// blockCache keeps the most recently read blocks, by their offset in the file.
type blockCache struct {
	mu        sync.Mutex // guards the fields below
	sizeBytes int
	recency   *list.List              // of cached, the most recently used first
	byOffset  map[int64]*list.Element // offset -> its element of order
}

type cachedBlock struct {
	offset int64
	block  *parsedBlock
}

func newBlockCache() *blockCache {
	return &blockCache{recency: list.New(), byOffset: map[int64]*list.Element{}}
}

// get returns nil when the block is not cached.
func (c *blockCache) get(at int64) *parsedBlock {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byOffset[at]
	if e == nil {
		return nil
	}
	c.recency.MoveToFront(e)
	return e.Value.(*cachedBlock).block
}

func (c *blockCache) put(at int64, b *parsedBlock) {
	if len(b.entries) > maxCachedBlockBytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byOffset[at] != nil {
		return
	}
	c.byOffset[at] = c.recency.PushFront(&cachedBlock{at, b})
	c.sizeBytes += b.memoryBytes()
	for c.sizeBytes > maxCacheBytes {
		e := c.recency.Back()
		old := c.recency.Remove(e).(*cachedBlock)
		delete(c.byOffset, old.offset)
		c.sizeBytes -= old.block.memoryBytes()
	}
}

const (
	maxCachedStrings     = 4096 // at most so many
	maxCachedStringBytes = 128  // bytes of one; longer ones are not shared often
)

// stringCache caches shared texts by their number: sources and vectors, which nearly every record
// has, and which are few.
type stringCache struct {
	mu       sync.RWMutex // guards byNumber
	byNumber map[uint64]string
}

func newStringCache() *stringCache { return &stringCache{byNumber: map[uint64]string{}} }

func (t *stringCache) get(n uint64) (string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s, ok := t.byNumber[n]
	return s, ok
}

// put adds a text up to the limits.
func (t *stringCache) put(n uint64, s string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(s) <= maxCachedStringBytes && len(t.byNumber) < maxCachedStrings {
		t.byNumber[n] = s
	}
}
