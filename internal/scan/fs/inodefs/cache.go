package inodefs

import "sync"

// Cache keeps the values that were used last, in two generations. When the younger one is full, it becomes
// the older one, and what was not used since the last time is dropped. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	maxBytes int // of both generations
	sizeOf   func(V) int

	mu         sync.Mutex // guards the fields below
	young, old map[K]V
	youngBytes int
}

// NewCache keeps values of at most maxBytes, of each of which sizeOf returns the bytes.
func NewCache[K comparable, V any](maxBytes int, sizeOf func(V) int) *Cache[K, V] {
	return &Cache[K, V]{maxBytes: maxBytes, sizeOf: sizeOf, young: map[K]V{}}
}

// Get returns a value that is kept.
func (c *Cache[K, V]) Get(k K) (v V, ok bool) {
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

// Put adds a value that does not change. One that is larger than a generation is not kept.
func (c *Cache[K, V]) Put(k K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(k, v)
}

// putLocked requires the lock.
func (c *Cache[K, V]) putLocked(k K, v V) {
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
