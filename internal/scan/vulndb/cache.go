package vulndb

import (
	"container/list"
	"sync"
)

const (
	cacheBytes = 2 << 20  // of blocks that are kept
	cacheBlock = 64 << 10 // larger blocks are not kept
)

// cache keeps the blocks that were read last, by their place in the file.
type cache struct {
	mu    sync.Mutex // guards the fields below
	size  int
	order *list.List              // of cached, that used last first
	items map[int64]*list.Element // place -> its element of order
}

type cached struct {
	at    int64
	block *sealed
}

func newCache() *cache {
	return &cache{order: list.New(), items: map[int64]*list.Element{}}
}

// get gives nil when the block is not kept.
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
	c.size += len(b.entries)
	for c.size > cacheBytes {
		e := c.order.Back()
		old := c.order.Remove(e).(*cached)
		delete(c.items, old.at)
		c.size -= len(old.block.entries)
	}
}
