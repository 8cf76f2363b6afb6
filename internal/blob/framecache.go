package blob

import (
	"container/list"
	"sync"
)

// frameKey names a frame of any layer.
type frameKey struct {
	layer Digest
	frame int
}

// FrameCache keeps the most recently used decoded frames of all chains that are opened with it. A layer that
// several chains share is decoded once. A frame that many readers request is decoded once, too. It may be used
// from many goroutines.
type FrameCache struct {
	limit int

	mu    sync.Mutex // guards the fields below
	byKey map[frameKey]*list.Element
	used  *list.List // of *cachedFrame, the newest first
}

type cachedFrame struct {
	key   frameKey
	ready chan struct{} // closed when the fields below are set
	raw   []byte
	err   error

	users int // readers of raw, including the cache; guarded by the cache
}

// NewFrameCache returns a cache of at most limit frames, each of at most 1 MiB.
func NewFrameCache(limit int) *FrameCache {
	return &FrameCache{limit: limit, byKey: map[frameKey]*list.Element{}, used: list.New()}
}

// get returns a frame. On a miss, load decodes it, into buf if possible. The bytes must not be changed; they
// are valid until put.
func (c *FrameCache) get(key frameKey, load func(buf []byte) ([]byte, error)) (*cachedFrame, error) {
	f, mine := c.take(key)
	if mine {
		f.raw, f.err = load(*rawFrames.Get().(*[]byte))
		if f.err != nil {
			c.forget(f)
		}
		close(f.ready)
	}
	<-f.ready
	if f.err != nil {
		c.put(f)
		return nil, f.err
	}
	return f, nil
}

// rawFrames recycles the memory of unused frames: clearing new memory for each decoded frame would cost a tenth
// of decoding it.
var rawFrames = sync.Pool{New: func() any { b := make([]byte, FrameSize+overrun); return &b }}

// put releases a frame that get returned.
func (c *FrameCache) put(f *cachedFrame) {
	if f == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(f)
}

// dropLocked removes a user. The last one returns the memory to the pool.
func (c *FrameCache) dropLocked(f *cachedFrame) {
	if f.users--; f.users == 0 && cap(f.raw) == FrameSize+overrun {
		b := f.raw[:FrameSize+overrun]
		rawFrames.Put(&b)
	}
}

// take finds or creates the entry; mine reports that the caller has to fill it.
func (c *FrameCache) take(key frameKey) (f *cachedFrame, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		c.used.MoveToFront(e)
		f = e.Value.(*cachedFrame)
		f.users++
		return f, false
	}
	if c.used.Len() >= c.limit {
		c.removeLocked(c.used.Back())
	}
	f = &cachedFrame{key: key, ready: make(chan struct{}), users: 2}
	c.byKey[key] = c.used.PushFront(f)
	return f, true
}

// forget removes a failed entry, so that the next reader tries again.
func (c *FrameCache) forget(f *cachedFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[f.key]; ok && e.Value == f {
		c.removeLocked(e)
	}
}

func (c *FrameCache) removeLocked(e *list.Element) {
	f := c.used.Remove(e).(*cachedFrame)
	delete(c.byKey, f.key)
	c.dropLocked(f)
}
