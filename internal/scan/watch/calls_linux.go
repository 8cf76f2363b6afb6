package watch

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"
)

// calls are those who wait until the goroutine that reads a queue has read what was in it
// when they asked.
type calls struct {
	wake signal // of that goroutine

	mu      sync.Mutex
	waiting []chan struct{}
}

// ask wakes the goroutine and waits. One that has ended knows nothing more.
func (c *calls) ask(ctx context.Context, ended <-chan struct{}) error {
	done := make(chan struct{})
	c.mu.Lock()
	c.waiting = append(c.waiting, done)
	c.mu.Unlock()
	c.wake.raise()
	select {
	case <-done:
		return nil
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take gives those who wait, to be answered when the queue was read.
func (c *calls) take() callers {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.waiting
	c.waiting = nil
	return out
}

// callers wait for one reading of a queue.
type callers []chan struct{}

// queued gives how many bytes of a queue are to be read for them.
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
