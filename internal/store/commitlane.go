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
	keyRev    int64 // ModRev of key as far as known; 0: absent
}

// sendBatch completes a batch: every request gets an answer.
func (sl *commitLane) sendBatch(ctx context.Context, batch []*commitRequest) {
	batch = sl.rejectStale(batch)
	for len(batch) > 0 {
		txn := sl.mergeRequests(batch)
		rev, err := sl.commit(ctx, txn)
		var conflict *ConflictError
		switch {
		case err == nil:
			sl.committer.store.model.applyCommitted(rev,
				tableUpdatesOf(batch, len(sl.committer.store.recordPrefix), rev))
			answerAll(batch, nil)
			return
		case !errors.As(err, &conflict):
			answerAll(batch, err)
			return
		}
		left := sl.rejectConflicts(batch, txn.Fence, conflict.Keys)
		if len(left) == len(batch) {
			answerAll(batch, fmt.Errorf("%w: backend reports a conflict on keys %v, which the commit does not change",
				ErrUnavailable,
				conflict.Keys))
			return
		}
		batch = left
	}
}

func answerAll(batch []*commitRequest, err error) {
	for _, r := range batch {
		r.result <- err
	}
}

// tableUpdatesOf returns the updates of the model by a committed batch. Its keys have root bytes before
// the kind.
func tableUpdatesOf(batch []*commitRequest, root int, rev int64) []tableUpdate {
	var ups []tableUpdate
	for _, r := range batch {
		for i, ch := range r.changes {
			if !ch.checkOnly {
				ups = append(ups,
					tableUpdate{table: ch.table, id: ch.id, key: r.keys[i][root:], record: ch.record, rev: rev})
			}
		}
	}
	return ups
}

// rejectStale answers requests that are bound to fail by the state of the model, so that they do not
// cost the others of their transaction a second round.
func (sl *commitLane) rejectStale(batch []*commitRequest) []*commitRequest {
	s := sl.committer.store
	return slices.DeleteFunc(slices.Clone(batch), func(r *commitRequest) bool {
		for i, ch := range r.changes {
			rel := r.keys[i][len(s.recordPrefix):]
			if s.model.isSuperseded(ch.table, ch.id, rel, int64(ch.condition)) {
				r.result <- &ConflictError{Keys: []string{rel}}
				return true
			}
		}
		return false
	})
}

// rejectConflicts answers the requests whose own conditions failed; the other requests of the
// transaction are left.
func (sl *commitLane) rejectConflicts(batch []*commitRequest, fence *Fence, keys []string) []*commitRequest {
	fenced := fence != nil && slices.Contains(keys, fence.Key)
	return slices.DeleteFunc(slices.Clone(batch), func(r *commitRequest) bool {
		if fenced && r.fence != nil {
			r.result <- ErrFenced
			return true
		}
		var lost []string
		for i, key := range r.keys {
			if r.changes[i].condition != Any && slices.Contains(keys, key) {
				lost = append(lost, key[len(sl.committer.store.recordPrefix):])
			}
		}
		if lost == nil {
			return false
		}
		r.result <- &ConflictError{Keys: lost}
		return true
	})
}

func (sl *commitLane) mergeRequests(batch []*commitRequest) Txn {
	var txn Txn
	checked := map[string]struct{}{}
	for _, r := range batch {
		if r.fence != nil {
			txn.Fence = r.fence
		}
		for i, ch := range r.changes {
			key := r.keys[i]
			if _, twice := checked[key]; ch.condition != Any && !twice {
				txn.Compares = append(txn.Compares, Compare{key, int64(ch.condition)})
			}
			switch {
			case ch.checkOnly:
				checked[key] = struct{}{}
			case ch.record == nil:
				txn.Deletes = append(txn.Deletes, key)
			default:
				txn.Puts = append(txn.Puts, KV{Key: key, Value: ch.encoded})
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
		txn.Compares = append(slices.Clip(compares), Compare{sl.key, sl.keyRev})
		txn.Puts = append(slices.Clip(puts), KV{Key: sl.key, Value: []byte(txnValue)})
		rev, err = sl.tryCommit(ctx, txn)
		if errors.Is(err, ErrUnknownOutcome) {
			rev, err = sl.resolveOutcome(ctx, txnValue, err)
		}
		var conflict *ConflictError
		var lost *notAppliedError
		switch {
		case err == nil:
			sl.keyRev = rev
			return rev, nil
		case errors.As(err, &lost):
			continue
		case !errors.As(err, &conflict) || !slices.Contains(conflict.Keys, sl.key):
			return 0, err
		}
		// The lane's key has changed: this is its first use, or an older lost transaction was
		// applied late.
		if err := sl.refreshKeyRev(ctx); err != nil {
			return 0, err
		}
		err = fmt.Errorf("%w: commit slot %s is in use by another process", ErrUnavailable, sl.key)
	}
	return 0, err
}

func (sl *commitLane) tryCommit(ctx context.Context, txn Txn) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return sl.committer.store.backend.Commit(ctx, txn)
}

func (sl *commitLane) readKey(ctx context.Context) (KV, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return sl.committer.store.backend.Get(ctx, sl.key)
}

func (sl *commitLane) refreshKeyRev(ctx context.Context) error {
	kv, err := sl.readKey(ctx)
	if err != nil {
		return fmt.Errorf("%w: read commit slot: %w", ErrUnavailable, err)
	}
	sl.keyRev = kv.ModRev
	return nil
}

// resolveOutcome determines the outcome of the transaction that carried txnValue. nil: it was applied, at rev.
// notAppliedError: it was not and never will be. ErrUnknownOutcome: the backend did not answer in time.
func (sl *commitLane) resolveOutcome(ctx context.Context, txnValue string, cause error) (rev int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	var blockers []string
	wait := retry.New(minBackoff, maxBackoff)
	for ctx.Err() == nil {
		blocker := rand.Text()
		blockers = append(blockers, blocker)
		rev, err := sl.tryCommit(ctx, Txn{
			Compares: []Compare{{sl.key, sl.keyRev}},
			Puts:     []KV{{Key: sl.key, Value: []byte(blocker)}},
		})
		if err == nil {
			sl.keyRev = rev
			return 0, &notAppliedError{cause}
		}
		if errors.Is(err, ErrConflict) {
			if kv, err := sl.readKey(ctx); err == nil {
				return sl.decideOutcome(kv, txnValue, blockers, cause)
			}
		}
		if sl.committer.store.BlockedReason() != "" { // it refuses everything until space is freed
			break
		}
		_ = wait.Sleep(ctx)
	}
	return 0, fmt.Errorf("commit: %w", cause)
}

// decideOutcome determines the outcome from the value that the blocking write met.
func (sl *commitLane) decideOutcome(kv KV, txnValue string, blockers []string, cause error) (int64, error) {
	sl.keyRev = kv.ModRev
	switch value := string(kv.Value); {
	case value == txnValue:
		return kv.ModRev, nil
	case slices.Contains(blockers, value):
		return 0, &notAppliedError{cause}
	}
	return 0, fmt.Errorf("commit slot %s is in use by another process: %w", sl.key, cause)
}

// notAppliedError means that a transaction was not applied and never will be: its outcome was unknown and
// has become known. It keeps the cause's text without the sentence that calls the outcome unknown.
type notAppliedError struct{ cause error }

// Error implements error.
func (e *notAppliedError) Error() string {
	text := strings.ReplaceAll(e.cause.Error(), ErrUnknownOutcome.Error(), "no answer in time")
	return ErrUnavailable.Error() + ": " + text
}

// Unwrap makes errors.Is(err, ErrUnavailable) true, and hides the cause's identity.
func (e *notAppliedError) Unwrap() error { return ErrUnavailable }

// deleteKey removes the lane's key when the store closes; a key left by a crash does no harm.
func (sl *commitLane) deleteKey(ctx context.Context) {
	if sl.keyRev == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := sl.committer.store.backend.Commit(ctx, Txn{
		Compares: []Compare{{sl.key, sl.keyRev}},
		Deletes:  []string{sl.key},
	})
	if err != nil {
		sl.committer.store.log.Info("removing a commit slot failed", "key", sl.key, "error", err)
	}
}
