package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"

	"github.com/buildyard/buildyard/internal/store"
)

const (
	defaultQuota = 2 << 30   // of a member that does not report its own
	shrinkMin    = 256 << 20 // bytes that rewriting the file must gain

	lookEvery    = 2 * time.Second // at the size of the embedded database
	lookEveryFar = 15 * time.Second
	lookTimeout  = time.Minute // of a pass that changes no file, including the responses of a distant member
	compactGap   = 30 * time.Second
	recoverAgain = 10 * time.Second // after a recovery that freed too little
	defragLimit  = 10 * time.Minute
	shedBatch    = 128 // keys a transaction
)

// The shares of the quota, in percent, at which something happens.
const (
	shareEarly  = 50 // superfluous revisions are removed immediately, not after minutes
	shareUrgent = 80 // the operator has to act
	shareShed   = 75 // when this much is in use after a compaction, the store deletes expendable records
)

// maintainer keeps a database below its quota, and makes a full one writable again.
type maintainer struct {
	b         *Backend
	log       *slog.Logger
	shrinkMin int64         // bytes that a defragmentation must be worth
	again     time.Duration // pause after a recovery that freed too little
	kick      chan struct{} // a write found the database full
	gate      *semaphore.Weighted
	compacted time.Time // the last early compaction
	tried     time.Time // the last recovery
	alarmed   int       // the share that was last reported

	mu         sync.Mutex
	shrinking  bool // a file is being rewritten
	refusing   bool // the database is full
	expendable func(n int) []string
}

// gateAll is more than the number of concurrent calls can be.
const gateAll = 1 << 30

func newMaintainer(b *Backend, log *slog.Logger) *maintainer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &maintainer{b: b, log: log, shrinkMin: shrinkMin, again: recoverAgain, kick: make(chan struct{},
		1), gate: semaphore.NewWeighted(gateAll)}
}

// enter waits while the database file is rewritten; the member does not answer then, and the
// outcome of a call would be unknown.
func (c *maintainer) enter(ctx context.Context) (leave func(), err error) {
	if err := c.gate.Acquire(ctx, 1); err != nil {
		busy := c.doing()
		if busy == "" {
			busy = "The store did not answer in time"
		}
		return nil, refusal(busy, context.Cause(ctx))
	}
	return func() { c.gate.Release(1) }, nil
}

// doing returns why the backend does not answer; empty when it does.
func (c *maintainer) doing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.shrinking:
		return shrinkingSentence
	case c.refusing:
		return fullSentence
	}
	return c.b.guard.sentence()
}

// The sentences of a backend that can be reached but refuses requests.
const (
	shrinkingSentence = "The store is making its database file smaller; try again in a moment"
	fullSentence      = "The store is full and refuses changes until it has made room; try again in a moment"
)

func (c *maintainer) note(what *bool, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*what = now
}

// full notifies the maintainer that a write was refused.
func (c *maintainer) full() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// run manages the database until ctx ends.
func (c *maintainer) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if c.b.failure.cause() != nil {
			return // it cannot be repaired any longer
		}
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("maintenance of the store database failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.kick:
		}
	}
}

// look does the maintenance that the present size requires.
func (c *maintainer) look(ctx context.Context) error {
	for _, member := range c.b.members {
		s, err := c.b.status(ctx, member)
		if err != nil {
			return err
		}
		if s.full {
			return c.recover(ctx)
		}
		c.note(&c.refusing, false)
		c.alarm(ctx, s)
		if share(s.file, s.quota) >= shareEarly && time.Since(c.compacted) >= compactGap {
			c.compacted = time.Now()
			if err := c.compact(ctx); err != nil {
				return err
			}
		}
		if c.b.ownFile && c.worthwhile(s) && c.b.guard.roomFor(s.used) {
			return c.defrag(ctx, member)
		}
	}
	return nil
}

func share(part, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(part * 100 / whole)
}

// alarmName is the value of the log key alarm for the database's size.
const alarmName = "store_full"

// alarm logs a share of the quota one time, when it is reached.
func (c *maintainer) alarm(ctx context.Context, s sizes) {
	now := share(s.file, s.quota)
	reached := 0
	for _, at := range []int{shareEarly, shareUrgent} {
		if now >= at {
			reached = at
		}
	}
	if reached > c.alarmed {
		level := slog.LevelWarn
		if reached == shareUrgent {
			level = slog.LevelError
		}
		c.log.Log(ctx, level, "store database filling up", "alarm", alarmName, "reached", fmt.Sprintf("%d %%", reached),
			"bytes", s.file, "in_use", s.used, "quota", s.quota)
	}
	c.alarmed = reached
}

// worthwhile reports whether more than half of the file is empty, and that half is not small.
func (c *maintainer) worthwhile(s sizes) bool {
	empty := s.file - s.used
	return empty > c.shrinkMin && share(empty, s.file) > 50
}

// compact drops the revisions that no watch of this process needs any more.
func (c *maintainer) compact(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	resp, err := c.b.kv.Get(ctx, c.b.probeKey, clientv3.WithCountOnly(), clientv3.WithSerializable())
	if err != nil {
		return readError(err)
	}
	return c.compactTo(ctx, c.b.watches.needed(resp.Header.Revision))
}

func (c *maintainer) compactTo(ctx context.Context, rev int64) error {
	_, err := c.b.kv.Compact(ctx, rev, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("%w: compact: %w", store.ErrUnavailable, err)
	}
	return nil
}

// defrag rewrites a member's file without its empty pages. The member does not answer during that,
// about 7 ms per MiB.
func (c *maintainer) defrag(ctx context.Context, member string) error {
	ctx, cancel := context.WithTimeout(ctx, defragLimit)
	defer cancel()
	began := time.Now()
	c.note(&c.shrinking, true)
	defer c.note(&c.shrinking, false)
	before, err := c.b.status(ctx, member)
	if err != nil {
		return err
	}
	if !c.b.guard.roomFor(before.used) {
		return fmt.Errorf("%w: defragment: not enough disk space for a copy of %d bytes", store.ErrUnavailable,
			before.used)
	}
	if err := c.gate.Acquire(ctx, gateAll); err != nil {
		return fmt.Errorf("wait for running calls to finish: %w", context.Cause(ctx))
	}
	err = c.b.defrag(ctx, member)
	c.gate.Release(gateAll)
	if err != nil {
		return fmt.Errorf("%w: defragment: %w", store.ErrUnavailable, err)
	}
	after, err := c.b.status(ctx, member)
	c.log.Info("store database defragmented", "member", member, "before", before.file, "after",
		after.file,
		"took", time.Since(began))
	return err
}

// BlockedReason returns why the backend refuses requests although it can be reached; empty when it accepts
// them.
func (b *Backend) BlockedReason() string { return b.care.doing() }

// compactInTurn drops the revisions of a shared cluster that are older than a period. One of all
// the replicas does it in each period: the one that is first to note the present revision, in a key
// next to the records.
func (c *maintainer) compactInTurn(ctx context.Context, period time.Duration) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	var seen int64 // when the note was last written, as far as this replica knows
	for {
		var err error
		if seen, err = c.turn(ctx, seen); err != nil && ctx.Err() == nil {
			c.log.Warn("compacting old revisions failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// turn compacts unless another replica has since seen, and returns the revision at which the note
// was written.
func (c *maintainer) turn(ctx context.Context, seen int64) (int64, error) {
	key := c.b.probeKey + "/compact"
	note, err := c.b.Get(ctx, key)
	if err != nil || note.ModRev != seen {
		return note.ModRev, err
	}
	now, err := c.b.Barrier(ctx)
	if err != nil {
		return seen, err
	}
	written, err := c.b.Commit(ctx, store.Txn{
		Compares: []store.Compare{{Key: key, ModRev: seen}},
		Puts:     []store.KV{{Key: key, Value: strconv.AppendInt(nil, now, 10)}},
	})
	if errors.Is(err, store.ErrConflict) {
		return seen, nil // another replica was first
	}
	if err != nil {
		return seen, err
	}
	if rev, err := strconv.ParseInt(string(note.Value), 10, 64); err == nil && rev > 0 {
		return written, c.compactTo(ctx, rev)
	}
	return written, nil
}
