package vulndb

import (
	"container/list"
	"sync"
)

const (
	cacheBytes = 2 << 20  // of cached blocks
	cacheBlock = 64 << 10 // larger blocks are not cached
)

// cache keeps the most recently read blocks, by their offset in the file.
type cache struct {
	mu    sync.Mutex // guards the fields below
	size  int
	order *list.List              // of cached, the most recently used first
	items map[int64]*list.Element // offset -> its element of order
}

type cached struct {
	at    int64
	block *sealed
}

func newCache() *cache {
	return &cache{order: list.New(), items: map[int64]*list.Element{}}
}

// get returns nil when the block is not cached.
func (c *cache) get(at int64) *sealed {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.items[at]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).block
}

func (c *cache) put(at int64, b *sealed) {
	if len(b.entries) > cacheBlock {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items[at] != nil {
		return
	}
	c.items[at] = c.order.PushFront(&cached{at, b})
	c.size += b.cost()
	for c.size > cacheBytes {
		e := c.order.Back()
		old := c.order.Remove(e).(*cached)
		delete(c.items, old.at)
		c.size -= old.block.cost()
	}
}

const (
	textsKept = 4096 // at most so many
	textKept  = 128  // bytes of one; longer ones are not shared often
)

// stringTable caches shared texts by their number: sources and vectors, which nearly every record
// has, and which are few.
type stringTable struct {
	mu   sync.RWMutex // guards kept
	kept map[uint64]string
}

func newTexts() *stringTable { return &stringTable{kept: map[uint64]string{}} }

func (t *stringTable) get(n uint64) (string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s, ok := t.kept[n]
	return s, ok
}

// put adds a text up to the limits.
func (t *stringTable) put(n uint64, s string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(s) <= textKept && len(t.kept) < textsKept {
		t.kept[n] = s
	}
}
