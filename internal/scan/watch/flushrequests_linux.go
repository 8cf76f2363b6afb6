package watch

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// flushRequests are callers that wait until the goroutine which reads a queue has read the events
// present at their call.
type flushRequests struct {
	wake signal        // of that goroutine, while it waits in poll(2)
	bell chan struct{} // of capacity 1: the same while it rests

	mu      sync.Mutex
	waiting []chan struct{}
}

func newFlushRequests() flushRequests { return flushRequests{wake: -1, bell: make(chan struct{}, 1)} }

// ask wakes the goroutine and waits for it. A goroutine that has ended has read everything it will.
func (c *flushRequests) ask(ctx context.Context, ended <-chan struct{}) error {
	done := make(chan struct{})
	c.mu.Lock()
	c.waiting = append(c.waiting, done)
	c.mu.Unlock()
	c.raise()
	select {
	case <-done:
		return nil
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// raise wakes the goroutine.
func (c *flushRequests) raise() {
	c.wake.raise()
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// rest waits for a caller or until the time is over. It does not use poll(2): a thread that blocks
// there keeps the runtime's own poller awake for a while each time, which costs more than the
// queue.
func (c *flushRequests) rest(most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.bell:
	}
}

// take returns the waiting callers, to be answered once the queue is read.
func (c *flushRequests) take() callers {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.waiting
	c.waiting = nil
	return out
}

// callers wait for the same read of a queue.
type callers []chan struct{}

// queued returns how many bytes of a queue must be read for them.
func (c callers) queued(fd int) int {
	if len(c) == 0 || fd < 0 {
		return 0
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // which is FIONREAD
	if err != nil {
		return 0
	}
	return n
}

// answer wakes them.
func (c callers) answer() {
	for _, done := range c {
		close(done)
	}
}
