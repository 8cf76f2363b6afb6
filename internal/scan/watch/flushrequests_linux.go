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
	wakeSignal wakeFD        // of that goroutine, while it waits in poll(2)
	restWake   chan struct{} // of capacity 1: the same while it rests

	mu      sync.Mutex
	waiters []chan struct{}
}

func newFlushRequests() flushRequests {
	return flushRequests{wakeSignal: -1, restWake: make(chan struct{}, 1)}
}

// request wakes the goroutine and waits for it. A goroutine that has ended has read everything it will.
func (c *flushRequests) request(ctx context.Context, ended <-chan struct{}) error {
	done := make(chan struct{})
	c.mu.Lock()
	c.waiters = append(c.waiters, done)
	c.mu.Unlock()
	c.notify()
	select {
	case <-done:
		return nil
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// notify wakes the goroutine.
func (c *flushRequests) notify() {
	c.wakeSignal.wake()
	select {
	case c.restWake <- struct{}{}:
	default:
	}
}

// restUntilRequest waits for a caller or until the time is over. It does not use poll(2): a thread that blocks
// there keeps the runtime's own poller awake for a while each time, which costs more than the
// queue.
func (c *flushRequests) restUntilRequest(most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.restWake:
	}
}

// takeWaiters returns the waiting callers, to be answered once the queue is read.
func (c *flushRequests) takeWaiters() flushWaiters {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.waiters
	c.waiters = nil
	return out
}

// flushWaiters wait for the same read of a queue.
type flushWaiters []chan struct{}

// queuedBytes returns how many bytes of a queue must be read for them.
func (c flushWaiters) queuedBytes(fd int) int {
	if len(c) == 0 || fd < 0 {
		return 0
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // which is FIONREAD
	if err != nil {
		return 0
	}
	return n
}

// wakeAll wakes them.
func (c flushWaiters) wakeAll() {
	for _, done := range c {
		close(done)
	}
}
