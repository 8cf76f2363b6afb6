package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/retry"
)

// Attempts of Update, and the delays between them.
const (
	updateAttempts   = 32
	minConflictDelay = 2 * time.Millisecond
	maxConflictDelay = 32 * time.Millisecond
)

// GetLinearizable reads the backend itself: the result is not older than the call, whatever this
// replica's tables show. It is required before every "not found" response where several processes
// write. For an absent record it returns nil, 0, nil.
func (t *Table[T]) GetLinearizable(ctx context.Context, id string) (*T, int64, error) {
	kv, err := t.readBackend(ctx, id)
	if err != nil || kv.ModRev == 0 {
		return nil, 0, err
	}
	if v, rev, _ := t.Get(id); rev == kv.ModRev {
		return v, rev, nil
	}
	v, err := t.codec.decode(kv.Value)
	if err != nil {
		return nil, 0, fmt.Errorf("decode %s/%s: %w", t.kind, id, err)
	}
	v = t.keptPart(v)
	u := tableUpdate{table: t, id: id, key: string(t.kind) + "/" + id, record: v, rev: kv.ModRev}
	t.store.Load().model.applyCommitted(kv.ModRev, []tableUpdate{u})
	return v, kv.ModRev, nil
}

// LoadFull reads a whole record from the backend, of which the table keeps a part; see WithPartialRecords. For an
// absent record it returns nil and no error.
func (t *Table[T]) LoadFull(ctx context.Context, id string) (*T, error) {
	kv, err := t.readBackend(ctx, id)
	if err != nil || kv.ModRev == 0 {
		return nil, err
	}
	v, err := t.codec.decode(kv.Value)
	if err != nil {
		return nil, fmt.Errorf("decode %s/%s: %w", t.kind, id, err)
	}
	return v, nil
}

// readBackend reads a record from the backend.
func (t *Table[T]) readBackend(ctx context.Context, id string) (KV, error) {
	s := t.store.Load()
	if s == nil {
		return KV{}, fmt.Errorf("%w: table %q is not open", ErrInvalid, t.kind)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kv, err := s.backend.Get(ctx, s.recordKey(t.kind, id))
	if err != nil {
		return KV{}, fmt.Errorf("read %s/%s: %w", t.kind, id, err)
	}
	return kv, nil
}

// Writer commits changes: a *Store, or the result of its WithFence.
type Writer interface {
	Commit(ctx context.Context, changes ...Change) error
}

var (
	_ Writer = (*Store)(nil)
	_ Writer = fencedWriter{}
)

// Update changes one record by compare-and-swap. fn receives the record, or nil when it does not
// exist, and must not change it. It returns the new one: a copy, nil to delete, or the very pointer
// it received to leave all as it is. fn may be called several times and must have no side effects.
// Update returns the record as it is now; an error of fn is returned as it is, ErrConflict means
// that other writers kept winning. w is the Store that t is open in, or a Writer of it.
func Update[T any](ctx context.Context, w Writer, t *Table[T], id string, fn func(*T) (*T, error)) (*T, error) {
	old, rev, ok := t.Get(id)
	wait := retry.New(minConflictDelay, maxConflictDelay)
	var err error
	for try := range updateAttempts {
		if !ok || try > 0 {
			if old, rev, err = t.GetLinearizable(ctx, id); err != nil {
				return nil, err
			}
		}
		val, ferr := fn(old)
		if ferr != nil || val == old {
			return old, ferr
		}
		change := Delete(t, id, IfRev(rev))
		if val != nil {
			change = Put(t, id, val, IfRev(rev))
		}
		if err = w.Commit(ctx, change); err == nil {
			return val, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
		if try > 1 {
			_ = wait.Sleep(ctx) // the next call of the backend fails then
		}
	}
	return nil, fmt.Errorf("record update failed after %d attempts: %w", updateAttempts, err)
}
