package watch

// cache keeps about as many values as its size, the most recently used ones. It is two maps: when
// the younger one is full, it becomes the older one, which is dropped.
type cache[V any] struct {
	generationSize int
	young, old     map[string]V
}

func newCache[V any](size int) *cache[V] {
	return &cache[V]{generationSize: size, young: map[string]V{}}
}

func (c *cache[V]) get(key []byte) (V, bool) {
	if v, ok := c.young[string(key)]; ok {
		return v, true
	}
	v, ok := c.old[string(key)]
	if ok {
		c.put(key, v)
	}
	return v, ok
}

func (c *cache[V]) put(key []byte, v V) {
	if len(c.young) >= c.generationSize/2 {
		c.old, c.young = c.young, map[string]V{}
	}
	c.young[string(key)] = v
}

func (c *cache[V]) clear() {
	if len(c.young) > 0 || len(c.old) > 0 {
		c.young, c.old = map[string]V{}, nil
	}
}
