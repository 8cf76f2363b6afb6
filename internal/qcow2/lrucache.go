package qcow2

import (
	"container/list"
	"sync"
)

// lruCache keeps the most recently used parts of an image, by their offset in the file.
type lruCache struct {
	maxItems int

	mu       sync.Mutex // guards the fields below
	byOffset map[int64]*list.Element
	recency  *list.List // of *cached, the newest first
}

type cachedItem struct {
	offset int64
	data   []byte // immutable
}

func newLRUCache(most int) *lruCache {
	return &lruCache{maxItems: most, byOffset: map[int64]*list.Element{}, recency: list.New()}
}

// get returns the item at an offset. Concurrent calls for one item may each read it.
func (c *lruCache) get(place int64, read func() ([]byte, error)) ([]byte, error) {
	if b, ok := c.lookup(place); ok {
		return b, nil
	}
	b, err := read()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byOffset[place] != nil {
		return b, nil
	}
	if c.recency.Len() >= c.maxItems {
		oldest := c.recency.Remove(c.recency.Back()).(*cachedItem)
		delete(c.byOffset, oldest.offset)
	}
	c.byOffset[place] = c.recency.PushFront(&cachedItem{place, b})
	return b, nil
}

func (c *lruCache) lookup(place int64) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byOffset[place]
	if e == nil {
		return nil, false
	}
	c.recency.MoveToFront(e)
	return e.Value.(*cachedItem).data, true
}
