package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	queueMax    = 4096
	inFlight    = 2 // concurrent transactions
	scanMax     = 1024
	commitTime  = 5 * time.Second
	resolveTime = 15 * time.Second

	commitAttempts = 3 // of a transaction that is lost in transit or meets another use of its lane
)

// committer batches the commits of all callers into few transactions. It has no timer: an idle
// worker takes what is queued at that moment, so a lone commit is sent immediately and many share a
// transaction.
//
// Invariant: no key is written by two transactions at a time.
type committer struct {
	store *Store
	slots [inFlight]commitLane
	done  sync.WaitGroup

	mu     sync.Mutex
	wake   sync.Cond
	queue  []*request
	busy   map[string]struct{} // keys of the running transactions
	closed bool
}

func newCommitter(s *Store, replica string) *committer {
	c := &committer{store: s, busy: map[string]struct{}{}}
	c.wake.L = &c.mu
	for i := range c.slots {
		c.slots[i] = commitLane{committer: c, key: fmt.Sprintf("%s/slot/%s/%d", s.prefix, replica, i)}
	}
	return c
}

func (c *committer) start(ctx context.Context) {
	for i := range c.slots {
		c.done.Go(func() { c.serve(ctx, &c.slots[i]) })
	}
}

func (c *committer) serve(ctx context.Context, sl *commitLane) {
	defer sl.forget(ctx)
	for {
		batch := c.take()
		if batch == nil {
			return
		}
		sl.send(ctx, batch)
		c.release(batch)
	}
}

func (c *committer) enqueue(r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if len(c.queue) >= queueMax {
		return ErrBusy
	}
	c.queue = append(c.queue, r)
	c.wake.Signal()
	return nil
}

// mark adds the keys that a request writes.
func (r *request) mark(keys map[string]struct{}) {
	for i, key := range r.keys {
		if !r.changes[i].check {
			keys[key] = struct{}{}
		}
	}
}

// withdraw removes a request from the queue unless a worker has taken it.
func (c *committer) withdraw(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.queue, r)
	if i < 0 {
		return false
	}
	c.queue = slices.Delete(c.queue, i, i+1)
	return true
}

// take waits for work and returns the requests of the next transaction; nil when the committer is
// closed.
func (c *committer) take() []*request {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.closed {
			return nil
		}
		if batch := c.pickLocked(); len(batch) > 0 {
			return batch
		}
		c.wake.Wait()
	}
}

// pickLocked moves the requests of one transaction out of the queue, oldest first. A request waits
// if it touches a key that a running transaction or a waiting request writes. So the writes of one
// key keep their order, and a check that is bound to fail uses no transaction. No request waits for
// a check.
func (c *committer) pickLocked() []*request {
	var (
		batch, kept []*request
		load        = load{limits: c.store.limits}
		held        = map[string]struct{}{} // keys that requests which have to wait will write
		i           int
	)
	for ; i < len(c.queue) && i < scanMax && !load.full(); i++ {
		r := c.queue[i]
		if !c.freeLocked(r, held) || !load.add(r) {
			kept = append(kept, r)
			r.mark(held)
		} else {
			batch = append(batch, r)
			r.mark(c.busy)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	kept = append(kept, c.queue[i:]...)
	c.queue = append(c.queue[:0], kept...)
	clear(c.queue[len(kept):cap(c.queue)])
	return batch
}

func (c *committer) freeLocked(r *request, held map[string]struct{}) bool {
	for _, key := range r.keys {
		if _, taken := c.busy[key]; taken {
			return false
		}
		if _, taken := held[key]; taken {
			return false
		}
	}
	return true
}

func (c *committer) release(batch []*request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range batch {
		for i, key := range r.keys {
			if !r.changes[i].check {
				delete(c.busy, key)
			}
		}
	}
	c.wake.Broadcast()
}

// close fails queued requests and waits for running transactions.
func (c *committer) close() {
	c.mu.Lock()
	c.closed = true
	queue := c.queue
	c.queue = nil
	c.wake.Broadcast()
	c.mu.Unlock()
	for _, r := range queue {
		r.done <- ErrClosed
	}
	c.done.Wait()
}

// load counts the operations and bytes of a transaction so far, without the lane's own write and
// compare.
type load struct {
	limits                  Limits
	writes, compares, bytes int
	fence                   *Fence
	checks                  map[string]Condition // keys that are compared and may be again
}

// full reserves one write and one compare for the lane, and one compare for a fence.
func (l *load) full() bool { return l.writes >= l.limits.Ops-1 || l.compares >= l.limits.Ops-2 }

// add puts a request into the transaction if it fits: at most one fence, one condition per key, and
// the limits of the backend.
func (l *load) add(r *request) bool {
	next := *l
	next.bytes += r.bytes
	for i, ch := range r.changes {
		known, checked := l.checks[r.keys[i]]
		if checked && ch.cond != Any && ch.cond != known {
			return false
		}
		if !ch.check {
			next.writes++
		}
		if ch.cond != Any && !checked {
			next.compares++
		}
	}
	if r.fence != nil {
		if l.fence != nil && *l.fence != *r.fence {
			return false
		}
		next.fence = r.fence
	}
	if next.writes > l.limits.Ops-1 || next.compares > l.limits.Ops-2 || next.bytes > l.limits.Bytes {
		return false
	}
	*l = next
	l.note(r)
	return true
}

// note records the checks of a request. Writes need no record: no key is written twice in a
// transaction, and no check follows a write of its key.
func (l *load) note(r *request) {
	for i, ch := range r.changes {
		if !ch.check {
			continue
		}
		if l.checks == nil {
			l.checks = map[string]Condition{}
		}
		l.checks[r.keys[i]] = ch.cond
	}
}
