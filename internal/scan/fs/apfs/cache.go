package apfs

import "sync"

// cache keeps the most recently used items, in two generations: an item in neither was not used
// among the last "most" items, and one in the old generation moves up when it is used. It keeps at
// most twice "most" items. The zero value is not usable.
type cache[K comparable, V any] struct {
	most int

	mu       sync.Mutex // guards the fields below
	now, old map[K]V
}

func newCache[K comparable, V any](most int) *cache[K, V] {
	return &cache[K, V]{most: max(most, 1), now: map[K]V{}}
}

func (c *cache[K, V]) get(k K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.now[k]; ok {
		return v, true
	}
	v, ok := c.old[k]
	if ok {
		c.put(k, v)
	}
	return v, ok
}

func (c *cache[K, V]) add(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(k, v)
}

// put requires the lock.
func (c *cache[K, V]) put(k K, v V) {
	if len(c.now) >= c.most {
		c.old, c.now = c.now, make(map[K]V, c.most)
	}
	c.now[k] = v
}
