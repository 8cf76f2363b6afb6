package apfs

import "sync"

// generationCache keeps the most recently used items, in two generations: an item in neither was not used
// among the last "most" items, and one in the old generation moves up when it is used. It keeps at
// most twice "most" items. The zero value is not usable.
type generationCache[K comparable, V any] struct {
	maxItems int

	mu         sync.Mutex // guards the fields below
	young, old map[K]V
}

func newGenerationCache[K comparable, V any](most int) *generationCache[K, V] {
	return &generationCache[K, V]{maxItems: max(most, 1), young: map[K]V{}}
}

func (c *generationCache[K, V]) get(k K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.young[k]; ok {
		return v, true
	}
	v, ok := c.old[k]
	if ok {
		c.putLocked(k, v)
	}
	return v, ok
}

func (c *generationCache[K, V]) add(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(k, v)
}

// putLocked requires the lock.
func (c *generationCache[K, V]) putLocked(k K, v V) {
	if len(c.young) >= c.maxItems {
		c.old, c.young = c.young, make(map[K]V, c.maxItems)
	}
	c.young[k] = v
}
