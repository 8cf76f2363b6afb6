package watch

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// flushRequests are those who wait until the goroutine that reads a queue has read what was in it
// when they asked.
type flushRequests struct {
	wake signal        // of that goroutine, while it waits in poll(2)
	bell chan struct{} // of one: the same while it rests

	mu      sync.Mutex
	waiting []chan struct{}
}

func newCalls() flushRequests { return flushRequests{wake: -1, bell: make(chan struct{}, 1)} }

// ask wakes the goroutine and waits. One that has ended knows nothing more.
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

// rest waits, until somebody calls. It is no poll(2): a thread that hangs there keeps the
// runtime's own watching awake for a while each time, which costs more than the queue.
func (c *flushRequests) rest(most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.bell:
	}
}

// take returns those who wait, to be answered when the queue was read.
func (c *flushRequests) take() callers {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.waiting
	c.waiting = nil
	return out
}

// callers wait for one reading of a queue.
type callers []chan struct{}

// queued returns how many bytes of a queue are to be read for them.
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

// answer lets them go.
func (c callers) answer() {
	for _, done := range c {
		close(done)
	}
}
