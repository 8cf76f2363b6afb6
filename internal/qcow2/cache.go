package qcow2

import (
	"container/list"
	"sync"
)

// cache keeps the most recently used parts of an image, by their offset in the file.
type cache struct {
	most int

	mu   sync.Mutex // guards the fields below
	at   map[int64]*list.Element
	used *list.List // of *cached, the newest first
}

type cached struct {
	place int64
	b     []byte // immutable
}

func newCache(most int) *cache {
	return &cache{most: most, at: map[int64]*list.Element{}, used: list.New()}
}

// get returns the item at an offset. Concurrent calls for one item may each read it.
func (c *cache) get(place int64, read func() ([]byte, error)) ([]byte, error) {
	if b, ok := c.look(place); ok {
		return b, nil
	}
	b, err := read()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[place] != nil {
		return b, nil
	}
	if c.used.Len() >= c.most {
		oldest := c.used.Remove(c.used.Back()).(*cached)
		delete(c.at, oldest.place)
	}
	c.at[place] = c.used.PushFront(&cached{place, b})
	return b, nil
}

func (c *cache) look(place int64) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[place]
	if e == nil {
		return nil, false
	}
	c.used.MoveToFront(e)
	return e.Value.(*cached).b, true
}
