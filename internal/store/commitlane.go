package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/retry"
)

// commitLane is the lane of one running transaction. Every transaction also rewrites the lane's own
// key, with a value that is used one time and on the condition that the key has not changed since
// the last one. That makes a timeout decidable: a process that rewrites the key again either finds
// the lost transaction's value, so it was applied, or prevents it permanently, however late it may
// reach the backend. One goroutine uses a lane.
type commitLane struct {
	committer *committer
	key       string
	rev       int64 // ModRev of key as far as known; 0: absent
}

// send completes a batch: every request gets an answer.
func (sl *commitLane) send(ctx context.Context, batch []*request) {
	batch = sl.dropStale(batch)
	for len(batch) > 0 {
		txn := sl.merge(batch)
		rev, err := sl.commit(ctx, txn)
		var conflict *ConflictError
		switch {
		case err == nil:
			sl.committer.store.model.ahead(rev, updatesOf(batch, len(sl.committer.store.root), rev))
			answer(batch, nil)
			return
		case !errors.As(err, &conflict):
			answer(batch, err)
			return
		}
		left := sl.dropLosers(batch, txn.Fence, conflict.Keys)
		if len(left) == len(batch) {
			answer(batch, fmt.Errorf("%w: backend reports a conflict on keys %v, which the commit does not change",
				ErrUnavailable,
				conflict.Keys))
			return
		}
		batch = left
	}
}

func answer(batch []*request, err error) {
	for _, r := range batch {
		r.done <- err
	}
}

// updatesOf returns the updates of the model by a committed batch. Its keys have root bytes before
// the kind.
func updatesOf(batch []*request, root int, rev int64) []update {
	var ups []update
	for _, r := range batch {
		for i, ch := range r.changes {
			if !ch.check {
				ups = append(ups, update{table: ch.table, id: ch.id, key: r.keys[i][root:], val: ch.val, rev: rev})
			}
		}
	}
	return ups
}

// dropStale answers requests that are bound to fail by the state of the model, so that they do not
// cost the others of their transaction a second round.
func (sl *commitLane) dropStale(batch []*request) []*request {
	s := sl.committer.store
	return slices.DeleteFunc(slices.Clone(batch), func(r *request) bool {
		for i, ch := range r.changes {
			rel := r.keys[i][len(s.root):]
			if s.model.lost(ch.table, ch.id, rel, int64(ch.cond)) {
				r.done <- &ConflictError{Keys: []string{rel}}
				return true
			}
		}
		return false
	})
}

// dropLosers answers the requests whose own conditions failed; the other requests of the
// transaction are left.
func (sl *commitLane) dropLosers(batch []*request, fence *Fence, keys []string) []*request {
	fenced := fence != nil && slices.Contains(keys, fence.Key)
	return slices.DeleteFunc(slices.Clone(batch), func(r *request) bool {
		if fenced && r.fence != nil {
			r.done <- ErrFenced
			return true
		}
		var lost []string
		for i, key := range r.keys {
			if r.changes[i].cond != Any && slices.Contains(keys, key) {
				lost = append(lost, key[len(sl.committer.store.root):])
			}
		}
		if lost == nil {
			return false
		}
		r.done <- &ConflictError{Keys: lost}
		return true
	})
}

func (sl *commitLane) merge(batch []*request) Txn {
	var txn Txn
	checked := map[string]struct{}{}
	for _, r := range batch {
		if r.fence != nil {
			txn.Fence = r.fence
		}
		for i, ch := range r.changes {
			key := r.keys[i]
			if _, twice := checked[key]; ch.cond != Any && !twice {
				txn.Compares = append(txn.Compares, Compare{key, int64(ch.cond)})
			}
			switch {
			case ch.check:
				checked[key] = struct{}{}
			case ch.val == nil:
				txn.Deletes = append(txn.Deletes, key)
			default:
				txn.Puts = append(txn.Puts, KV{Key: key, Value: ch.data})
			}
		}
	}
	return txn
}

// commit sends one transaction through the lane and returns a definite result wherever it can get
// one. A transaction that was lost in transit, as when the backend changes its leader, is sent
// again once it is certain that it was not applied.
func (sl *commitLane) commit(ctx context.Context, txn Txn) (rev int64, err error) {
	compares, puts := txn.Compares, txn.Puts
	for range commitAttempts {
		txnValue := rand.Text()
		txn.Compares = append(slices.Clip(compares), Compare{sl.key, sl.rev})
		txn.Puts = append(slices.Clip(puts), KV{Key: sl.key, Value: []byte(txnValue)})
		rev, err = sl.try(ctx, txn)
		if errors.Is(err, ErrUnknownOutcome) {
			rev, err = sl.resolve(ctx, txnValue, err)
		}
		var conflict *ConflictError
		var lost *lostError
		switch {
		case err == nil:
			sl.rev = rev
			return rev, nil
		case errors.As(err, &lost):
			continue
		case !errors.As(err, &conflict) || !slices.Contains(conflict.Keys, sl.key):
			return 0, err
		}
		// The lane's key has changed: this is its first use, or an older lost transaction was
		// applied late.
		if err := sl.reread(ctx); err != nil {
			return 0, err
		}
		err = fmt.Errorf("%w: commit slot %s is in use by another process", ErrUnavailable, sl.key)
	}
	return 0, err
}

func (sl *commitLane) try(ctx context.Context, txn Txn) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTime)
	defer cancel()
	return sl.committer.store.backend.Commit(ctx, txn)
}

func (sl *commitLane) read(ctx context.Context) (KV, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTime)
	defer cancel()
	return sl.committer.store.backend.Get(ctx, sl.key)
}

func (sl *commitLane) reread(ctx context.Context) error {
	kv, err := sl.read(ctx)
	if err != nil {
		return fmt.Errorf("%w: read commit slot: %w", ErrUnavailable, err)
	}
	sl.rev = kv.ModRev
	return nil
}

// resolve determines the outcome of the transaction that carried txnValue. nil: it was applied, at rev.
// lostError: it was not and never will be. ErrUnknownOutcome: the backend did not answer in time.
func (sl *commitLane) resolve(ctx context.Context, txnValue string, cause error) (rev int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	var blockers []string
	wait := retry.New(backoffFirst, backoffMax)
	for ctx.Err() == nil {
		blocker := rand.Text()
		blockers = append(blockers, blocker)
		rev, err := sl.try(ctx, Txn{
			Compares: []Compare{{sl.key, sl.rev}},
			Puts:     []KV{{Key: sl.key, Value: []byte(blocker)}},
		})
		if err == nil {
			sl.rev = rev
			return 0, &lostError{cause}
		}
		if errors.Is(err, ErrConflict) {
			if kv, err := sl.read(ctx); err == nil {
				return sl.verdict(kv, txnValue, blockers, cause)
			}
		}
		if sl.committer.store.BlockedReason() != "" { // it refuses everything until space is freed
			break
		}
		_ = wait.Sleep(ctx)
	}
	return 0, fmt.Errorf("commit: %w", cause)
}

// verdict determines the outcome from the value that the blocking write met.
func (sl *commitLane) verdict(kv KV, txnValue string, blockers []string, cause error) (int64, error) {
	sl.rev = kv.ModRev
	switch value := string(kv.Value); {
	case value == txnValue:
		return kv.ModRev, nil
	case slices.Contains(blockers, value):
		return 0, &lostError{cause}
	}
	return 0, fmt.Errorf("commit slot %s is in use by another process: %w", sl.key, cause)
}

// lostError means that a transaction was not applied and never will be: its outcome was unknown and
// has become known. It keeps the cause's text without the sentence that calls the outcome unknown.
type lostError struct{ cause error }

// Error implements error.
func (e *lostError) Error() string {
	text := strings.ReplaceAll(e.cause.Error(), ErrUnknownOutcome.Error(), "no answer in time")
	return ErrUnavailable.Error() + ": " + text
}

// Unwrap makes errors.Is(err, ErrUnavailable) true, and hides the cause's identity.
func (e *lostError) Unwrap() error { return ErrUnavailable }

// forget removes the lane's key when the store closes; a key left by a crash does no harm.
func (sl *commitLane) forget(ctx context.Context) {
	if sl.rev == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := sl.committer.store.backend.Commit(ctx, Txn{
		Compares: []Compare{{sl.key, sl.rev}},
		Deletes:  []string{sl.key},
	})
	if err != nil {
		sl.committer.store.log.Info("removing a commit slot failed", "key", sl.key, "error", err)
	}
}
