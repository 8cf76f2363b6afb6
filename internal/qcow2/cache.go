package qcow2

import (
	"maps"
	"slices"
	"sync"
)

// cache keeps what was read last of an image, by its place in the file.
type cache struct {
	most int

	mu    sync.Mutex // guards the fields below
	clock int64
	items map[int64]*cached
}

type cached struct {
	b    []byte // is never changed
	used int64
}

func newCache(most int) *cache {
	return &cache{most: most, items: map[int64]*cached{}}
}

// get gives the item at a place. Several that want it at once may each read it.
func (c *cache) get(place int64, read func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	c.clock++
	if it := c.items[place]; it != nil {
		it.used = c.clock
		c.mu.Unlock()
		return it.b, nil
	}
	c.mu.Unlock()
	b, err := read()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.items) >= c.most {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(c.items)), func(a, b int64) int {
			return int(c.items[a].used - c.items[b].used)
		})
		delete(c.items, oldest)
	}
	c.items[place] = &cached{b: b, used: c.clock}
	return b, nil
}
