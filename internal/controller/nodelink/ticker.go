package nodelink

import (
	"sync"
	"time"
)

// tickInterval is the grid of times at which polls without work end. The polls of many nodes end together
// then, and wake an idle process a few times per second instead of one time each: most of the cost
// of an idle node is that wakeup.
const tickInterval = 500 * time.Millisecond

// sharedTicker wakes all waiters for the same time of the grid with one timer. It uses the
// monotonic clock, since the wall clock may jump.
type sharedTicker struct {
	started time.Time

	mu   sync.Mutex // guards ends
	ends map[time.Duration]chan struct{}
}

func newSharedTicker() *sharedTicker {
	return &sharedTicker{started: time.Now(), ends: map[time.Duration]chan struct{}{}}
}

// after returns a channel that is closed at the first time of the grid that is not before wait has
// passed.
func (b *sharedTicker) after(wait time.Duration) <-chan struct{} {
	now := time.Since(b.started)
	at := (now + wait + tickInterval - 1).Truncate(tickInterval)
	b.mu.Lock()
	defer b.mu.Unlock()
	end := b.ends[at]
	if end == nil {
		end = make(chan struct{})
		b.ends[at] = end
		time.AfterFunc(at-now, func() {
			b.mu.Lock()
			delete(b.ends, at)
			b.mu.Unlock()
			close(end)
		})
	}
	return end
}
