package blob

import (
	"container/list"
	"sync"
)

// frameKey names a frame of any layer.
type frameKey struct {
	layer Root
	frame int
}

// Frames keeps the decoded frames that were used last, of as many chains as are opened with it: a layer that several
// rest on is decoded once. A frame that many readers want is decoded once, too. It may be used from many goroutines.
type Frames struct {
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
}

// NewFrames keeps at most so many frames, each of at most 1 MiB.
func NewFrames(limit int) *Frames {
	return &Frames{limit: limit, byKey: map[frameKey]*list.Element{}, used: list.New()}
}

// get gives a frame; load makes it when it is not there. The bytes must not be changed.
func (c *Frames) get(key frameKey, load func() ([]byte, error)) ([]byte, error) {
	f, mine := c.take(key)
	if mine {
		f.raw, f.err = load()
		if f.err != nil {
			c.forget(f)
		}
		close(f.ready)
	}
	<-f.ready
	return f.raw, f.err
}

// take finds or makes the entry; mine says that the caller has to fill it.
func (c *Frames) take(key frameKey) (f *cachedFrame, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		c.used.MoveToFront(e)
		return e.Value.(*cachedFrame), false
	}
	if c.used.Len() >= c.limit {
		oldest := c.used.Back()
		delete(c.byKey, oldest.Value.(*cachedFrame).key)
		c.used.Remove(oldest)
	}
	f = &cachedFrame{key: key, ready: make(chan struct{})}
	c.byKey[key] = c.used.PushFront(f)
	return f, true
}

// forget lets the next reader try again.
func (c *Frames) forget(f *cachedFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[f.key]; ok && e.Value == f {
		delete(c.byKey, f.key)
		c.used.Remove(e)
	}
}
