package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	maxQueuedCommits = 4096
	maxRunningTxns   = 2 // concurrent transactions
	maxQueueScan     = 1024
	commitTimeout    = 5 * time.Second
	resolveTimeout   = 15 * time.Second

	commitAttempts = 3 // of a transaction that is lost in transit or meets another use of its lane
)

// committer batches the commits of all callers into few transactions. It has no timer: an idle
// worker takes what is queued at that moment, so a lone commit is sent immediately and many share a
// transaction.
//
// Invariant: no key is written by two transactions at a time.
type committer struct {
	store   *Store
	lanes   [maxRunningTxns]commitLane
	workers sync.WaitGroup

	mu       sync.Mutex
	wake     sync.Cond
	queue    []*commitRequest
	busyKeys map[string]struct{} // keys of the running transactions
	closed   bool
}

func newCommitter(s *Store, replica string) *committer {
	c := &committer{store: s, busyKeys: map[string]struct{}{}}
	c.wake.L = &c.mu
	for i := range c.lanes {
		c.lanes[i] = commitLane{committer: c, key: fmt.Sprintf("%s/slot/%s/%d", s.prefix, replica, i)}
	}
	return c
}

func (c *committer) start(ctx context.Context) {
	for i := range c.lanes {
		c.workers.Go(func() { c.serveLane(ctx, &c.lanes[i]) })
	}
}

func (c *committer) serveLane(ctx context.Context, sl *commitLane) {
	defer sl.deleteKey(ctx)
	for {
		batch := c.nextBatch()
		if batch == nil {
			return
		}
		sl.sendBatch(ctx, batch)
		c.releaseKeys(batch)
	}
}

func (c *committer) enqueue(r *commitRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if len(c.queue) >= maxQueuedCommits {
		return ErrBusy
	}
	c.queue = append(c.queue, r)
	c.wake.Signal()
	return nil
}

// addWrittenKeys adds the keys that a request writes.
func (r *commitRequest) addWrittenKeys(keys map[string]struct{}) {
	for i, key := range r.keys {
		if !r.changes[i].checkOnly {
			keys[key] = struct{}{}
		}
	}
}

// removeQueued removes a request from the queue unless a worker has taken it.
func (c *committer) removeQueued(r *commitRequest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.queue, r)
	if i < 0 {
		return false
	}
	c.queue = slices.Delete(c.queue, i, i+1)
	return true
}

// nextBatch waits for work and returns the requests of the next transaction; nil when the committer is
// closed.
func (c *committer) nextBatch() []*commitRequest {
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
func (c *committer) pickLocked() []*commitRequest {
	var (
		batch, kept []*commitRequest
		load        = txnBuilder{limits: c.store.limits}
		held        = map[string]struct{}{} // keys that requests which have to wait will write
		i           int
	)
	for ; i < len(c.queue) && i < maxQueueScan && !load.isFull(); i++ {
		r := c.queue[i]
		if !c.canRunLocked(r, held) || !load.addIfFits(r) {
			kept = append(kept, r)
			r.addWrittenKeys(held)
		} else {
			batch = append(batch, r)
			r.addWrittenKeys(c.busyKeys)
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

func (c *committer) canRunLocked(r *commitRequest, held map[string]struct{}) bool {
	for _, key := range r.keys {
		if _, taken := c.busyKeys[key]; taken {
			return false
		}
		if _, taken := held[key]; taken {
			return false
		}
	}
	return true
}

func (c *committer) releaseKeys(batch []*commitRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range batch {
		for i, key := range r.keys {
			if !r.changes[i].checkOnly {
				delete(c.busyKeys, key)
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
		r.result <- ErrClosed
	}
	c.workers.Wait()
}

// txnBuilder counts the operations and bytes of a transaction so far, without the lane's own write and
// compare.
type txnBuilder struct {
	limits                  Limits
	writes, compares, bytes int
	fence                   *Fence
	checks                  map[string]Condition // keys that are compared and may be again
}

// isFull reserves one write and one compare for the lane, and one compare for a fence.
func (l *txnBuilder) isFull() bool {
	return l.writes >= l.limits.MaxOps-1 || l.compares >= l.limits.MaxOps-2
}

// addIfFits puts a request into the transaction if it fits: at most one fence, one condition per key, and
// the limits of the backend.
func (l *txnBuilder) addIfFits(r *commitRequest) bool {
	next := *l
	next.bytes += r.bytes
	for i, ch := range r.changes {
		known, checked := l.checks[r.keys[i]]
		if checked && ch.condition != Any && ch.condition != known {
			return false
		}
		if !ch.checkOnly {
			next.writes++
		}
		if ch.condition != Any && !checked {
			next.compares++
		}
	}
	if r.fence != nil {
		if l.fence != nil && *l.fence != *r.fence {
			return false
		}
		next.fence = r.fence
	}
	if next.writes > l.limits.MaxOps-1 || next.compares > l.limits.MaxOps-2 || next.bytes > l.limits.MaxBytes {
		return false
	}
	*l = next
	l.recordChecks(r)
	return true
}

// recordChecks records the checks of a request. Writes need no record: no key is written twice in a
// transaction, and no check follows a write of its key.
func (l *txnBuilder) recordChecks(r *commitRequest) {
	for i, ch := range r.changes {
		if !ch.checkOnly {
			continue
		}
		if l.checks == nil {
			l.checks = map[string]Condition{}
		}
		l.checks[r.keys[i]] = ch.condition
	}
}
