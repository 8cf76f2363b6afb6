package xfs

import "sync"

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
