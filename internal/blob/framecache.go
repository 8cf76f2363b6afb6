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

// FrameCache keeps the most recently used frames of all chains that are opened with it. A layer that
// several chains share is decoded once. A frame that many readers request is decoded once, too. It may be used
// from many goroutines.
type FrameCache struct {
	maxFrames int

	mu    sync.Mutex // guards the fields below
	byKey map[frameKey]*list.Element
	lru   *list.List // of *cachedFrame, the newest first
}

type cachedFrame struct {
	key   frameKey
	ready chan struct{} // closed when the fields below are set
	*frameBytes
	buf *[]byte // of rawFramePool, which the bytes may be in
	err error

	refs int // readers of the bytes, including the cache; guarded by the cache
}

// NewFrameCache returns a cache of at most limit frames, each of at most 1 MiB, and as much while it is stored and
// sections of it are not decoded.
func NewFrameCache(limit int) *FrameCache {
	return &FrameCache{maxFrames: limit, byKey: map[frameKey]*list.Element{}, lru: list.New()}
}

// get returns a frame. On a miss, load reads it, into buf if possible. It may be read until release.
func (c *FrameCache) get(key frameKey, load func(buf []byte) (*frameBytes, error)) (*cachedFrame, error) {
	f, mine := c.lookupOrAdd(key)
	if mine {
		f.buf = rawFramePool.Get().(*[]byte)
		f.frameBytes, f.err = load(*f.buf)
		if f.err != nil {
			c.removeFailed(f)
		}
		close(f.ready)
	}
	<-f.ready
	if f.err != nil {
		c.release(f)
		return nil, f.err
	}
	return f, nil
}

// rawFramePool recycles the memory of unused frames: clearing new memory for each decoded frame would cost a tenth
// of decoding it.
var rawFramePool = sync.Pool{New: func() any { b := make([]byte, rawFrameBytes); return &b }}

// rawFrameBytes holds a frame of any number of sections.
const rawFrameBytes = MaxFrameSize + maxSections*decodeOverrun

// release releases a frame that get returned.
func (c *FrameCache) release(f *cachedFrame) {
	if f == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseLocked(f)
}

// releaseLocked removes a user. The last one returns the memory to the pool.
func (c *FrameCache) releaseLocked(f *cachedFrame) {
	if f.refs--; f.refs > 0 {
		return
	}
	if f.frameBytes != nil {
		f.releaseStored()
	}
	rawFramePool.Put(f.buf)
}

// lookupOrAdd finds or creates the entry; mine reports that the caller has to fill it.
func (c *FrameCache) lookupOrAdd(key frameKey) (f *cachedFrame, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		c.lru.MoveToFront(e)
		f = e.Value.(*cachedFrame)
		f.refs++
		return f, false
	}
	if c.lru.Len() >= c.maxFrames {
		c.removeLocked(c.lru.Back())
	}
	f = &cachedFrame{key: key, ready: make(chan struct{}), refs: 2}
	c.byKey[key] = c.lru.PushFront(f)
	return f, true
}

// removeFailed removes a failed entry, so that the next reader tries again.
func (c *FrameCache) removeFailed(f *cachedFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[f.key]; ok && e.Value == f {
		c.removeLocked(e)
	}
}

func (c *FrameCache) removeLocked(e *list.Element) {
	f := c.lru.Remove(e).(*cachedFrame)
	delete(c.byKey, f.key)
	c.releaseLocked(f)
}
