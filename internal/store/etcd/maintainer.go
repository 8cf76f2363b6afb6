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
	fallbackQuotaBytes    = 2 << 30   // of a member that does not report its own
	defaultMinShrinkBytes = 256 << 20 // bytes that rewriting the file must gain

	checkInterval        = 2 * time.Second // at the size of the embedded database
	remoteCheckInterval  = 15 * time.Second
	checkTimeout         = time.Minute // of a pass that changes no file, including the responses of a distant member
	minCompactInterval   = 30 * time.Second
	defaultRecoveryPause = 10 * time.Second // after a recovery that freed too little
	defragTimeout        = 10 * time.Minute
	deleteBatchKeys      = 128 // keys a transaction
)

// The shares of the quota, in percent, at which something happens.
const (
	compactEarlyPercent  = 50 // superfluous revisions are removed immediately, not after minutes
	alarmPercent         = 80 // the operator has to act
	deleteRecordsPercent = 75 // when this much is in use after a compaction, the store deletes expendable records
)

// maintainer keeps a database below its quota, and makes a full one writable again.
type maintainer struct {
	backend         *Backend
	log             *slog.Logger
	minShrinkBytes  int64         // bytes that a defragmentation must be worth
	recoveryPause   time.Duration // pause after a recovery that freed too little
	writeRefused    chan struct{} // a write found the database full
	callGate        *semaphore.Weighted
	lastCompaction  time.Time // the last early compaction
	lastRecovery    time.Time // the last recovery
	reportedPercent int       // the share that was last reported
	deniedCalls     deniedCalls

	mu               sync.Mutex
	shrinking        bool // a file is being rewritten
	refusing         bool // the database is full
	oldestExpendable func(n int) []string
}

// gateCapacity is more than the number of concurrent calls can be.
const gateCapacity = 1 << 30

func newMaintainer(b *Backend, log *slog.Logger) *maintainer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &maintainer{
		backend: b, log: log, minShrinkBytes: defaultMinShrinkBytes, recoveryPause: defaultRecoveryPause,
		writeRefused: make(chan struct{},
			1), callGate: semaphore.NewWeighted(gateCapacity),
	}
}

// enterCall waits while the database file is rewritten; the member does not answer then, and the
// outcome of a call would be unknown.
func (c *maintainer) enterCall(ctx context.Context) (leave func(), err error) {
	if err := c.callGate.Acquire(ctx, 1); err != nil {
		busy := c.blockedMessage()
		if busy == "" {
			busy = "The store did not answer in time"
		}
		return nil, refusalError(busy, context.Cause(ctx))
	}
	return func() { c.callGate.Release(1) }, nil
}

// blockedMessage returns why the backend does not answer; empty when it does.
func (c *maintainer) blockedMessage() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.shrinking:
		return shrinkingMessage
	case c.refusing:
		return fullMessage
	}
	return c.backend.diskGuard.refusalMessage()
}

// The sentences of a backend that can be reached but refuses requests.
const (
	shrinkingMessage = "The store is making its database file smaller; try again in a moment"
	fullMessage      = "The store is full and refuses changes until space is freed; try again in a moment"
)

func (c *maintainer) setFlag(what *bool, now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*what = now
}

// notifyFull notifies the maintainer that a write was refused.
func (c *maintainer) notifyFull() {
	select {
	case c.writeRefused <- struct{}{}:
	default:
	}
}

// run manages the database until ctx ends.
func (c *maintainer) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if c.backend.failure.cause() != nil {
			return // it cannot be repaired any longer
		}
		if err := c.maintain(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("maintenance of the store database failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.writeRefused:
		}
	}
}

// maintain does the maintenance that the present sizes require. Members that do not answer are left out.
func (c *maintainer) maintain(ctx context.Context) error {
	members, err := c.listMembers(ctx)
	for _, m := range members {
		if m.noSpace {
			return c.recoverFull(ctx)
		}
		c.setFlag(&c.refusing, false)
		c.logAlarm(ctx, m.memberStatus)
		if percentOf(m.fileBytes, m.quotaBytes) >= compactEarlyPercent &&
			time.Since(c.lastCompaction) >= minCompactInterval {
			c.lastCompaction = time.Now()
			if err := c.compact(ctx); err != nil && !errors.Is(err, errDeniedCall) {
				return err
			}
		}
		if c.backend.ownsFile && c.isDefragWorthwhile(m.memberStatus) && c.backend.diskGuard.hasSpaceFor(m.usedBytes) {
			return c.defrag(ctx, m.address)
		}
	}
	return err
}

// clusterMember is a member that answered.
type clusterMember struct {
	address string
	memberStatus
}

// listMembers returns the members that answer, the leader last, and why others did not. A cluster of
// which some members answer is not an error: their operator knows.
func (c *maintainer) listMembers(ctx context.Context) (members []clusterMember, err error) {
	var errs []error
	var leader []clusterMember
	for _, address := range c.backend.memberAddrs {
		s, err := c.backend.memberStatus(ctx, address)
		switch {
		case err != nil:
			errs = append(errs, err)
		case s.isLeader:
			leader = append(leader, clusterMember{address, s})
		default:
			members = append(members, clusterMember{address, s})
		}
	}
	if members = append(members, leader...); len(members) == 0 {
		return nil, errors.Join(errs...)
	}
	return members, nil
}

func percentOf(part, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(part * 100 / whole)
}

// alarmName is the value of the log key alarm for the database's size.
const alarmName = "store_full"

// logAlarm logs a share of the quota one time, when it is reached.
func (c *maintainer) logAlarm(ctx context.Context, s memberStatus) {
	now := percentOf(s.fileBytes, s.quotaBytes)
	reached := 0
	for _, at := range []int{compactEarlyPercent, alarmPercent} {
		if now >= at {
			reached = at
		}
	}
	if reached > c.reportedPercent {
		level := slog.LevelWarn
		if reached == alarmPercent {
			level = slog.LevelError
		}
		c.log.Log(ctx, level, "store database filling up", "alarm", alarmName, "reached", fmt.Sprintf("%d %%", reached),
			"bytes", s.fileBytes, "in_use", s.usedBytes, "quota", s.quotaBytes)
	}
	c.reportedPercent = reached
}

// isDefragWorthwhile reports whether more than half of the file is empty, and that half is not small.
func (c *maintainer) isDefragWorthwhile(s memberStatus) bool {
	empty := s.fileBytes - s.usedBytes
	return empty > c.minShrinkBytes && percentOf(empty, s.fileBytes) > 50
}

// compact drops the revisions that no watch of this process needs any more.
func (c *maintainer) compact(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	resp, err := c.backend.client.Get(ctx, c.backend.probeKey(), clientv3.WithCountOnly(), clientv3.WithSerializable())
	if err != nil {
		return readError(err)
	}
	return c.compactTo(ctx, c.backend.watches.passedByAll(resp.Header.Revision))
}

func (c *maintainer) compactTo(ctx context.Context, rev int64) error {
	_, err := c.backend.client.Compact(ctx, rev, clientv3.WithCompactPhysical())
	switch {
	case err == nil, errors.Is(err, rpctypes.ErrCompacted):
		return nil
	case isDenied(err):
		c.deniedCalls.log(c.log, callCompact)
		return errDeniedCall
	}
	return fmt.Errorf("%w: compact: %w", store.ErrUnavailable, err)
}

// defrag rewrites a member's file without its empty pages. The member does not answer during that,
// about 7 ms per MiB.
func (c *maintainer) defrag(ctx context.Context, member string) error {
	ctx, cancel := context.WithTimeout(ctx, defragTimeout)
	defer cancel()
	began := time.Now()
	c.setFlag(&c.shrinking, true)
	defer c.setFlag(&c.shrinking, false)
	before, err := c.backend.memberStatus(ctx, member)
	if err != nil {
		return err
	}
	if !c.backend.diskGuard.hasSpaceFor(before.usedBytes) {
		return fmt.Errorf("%w: defragment: not enough disk space for a copy of %d bytes", store.ErrUnavailable,
			before.usedBytes)
	}
	if err := c.callGate.Acquire(ctx, gateCapacity); err != nil {
		return fmt.Errorf("wait for running calls to finish: %w", context.Cause(ctx))
	}
	err = c.backend.defragMember(ctx, member)
	c.callGate.Release(gateCapacity)
	switch {
	case isDenied(err):
		c.deniedCalls.log(c.log, callDefragment)
		return nil
	case err != nil:
		return fmt.Errorf("%w: defragment: %w", store.ErrUnavailable, err)
	}
	after, err := c.backend.memberStatus(ctx, member)
	c.log.Info("store database defragmented", "member", member, "before", before.fileBytes, "after",
		after.fileBytes,
		"took", time.Since(began))
	return err
}

// BlockedReason returns why the backend refuses requests although it can be reached; empty when it accepts
// them.
func (b *Backend) BlockedReason() string { return b.maintainer.blockedMessage() }

// compactShared drops the revisions of a shared cluster that are older than a period. One of all
// the replicas does it in each period: the one that is first to note the present revision, in a key
// next to the records.
func (c *maintainer) compactShared(ctx context.Context, period time.Duration) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	var seen int64 // when the note was last written, as far as this replica knows
	for {
		var err error
		if seen, err = c.tryCompactTurn(ctx, seen); err != nil && ctx.Err() == nil {
			c.log.Warn("compacting old revisions failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// tryCompactTurn compacts unless another replica has since seen, and returns the revision at which the note
// was written.
func (c *maintainer) tryCompactTurn(ctx context.Context, seen int64) (int64, error) {
	key := c.backend.prefix + "/compact"
	note, err := c.backend.Get(ctx, key)
	if err != nil || note.ModRev != seen {
		return note.ModRev, err
	}
	now, err := c.backend.Barrier(ctx)
	if err != nil {
		return seen, err
	}
	written, err := c.backend.Commit(ctx, store.Txn{
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
		if err := c.compactTo(ctx, rev); !errors.Is(err, errDeniedCall) {
			return written, err
		}
	}
	return written, nil
}
