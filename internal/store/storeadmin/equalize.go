package storeadmin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

const (
	maxBatchRecords = 100 // below the limit of an etcd with its default configuration
	batchRetryTime  = 30 * time.Second
	batchRetryPause = 250 * time.Millisecond
)

// errTakenOver means that another process has begun the same work, or has ended it.
var errTakenOver = errors.New("another process has taken over this copy")

// equalizer makes the records of one store those of another.
//
// Every transaction is on the condition that the target is still closed for this copy, so that two
// processes never write at a time, and none after the target was opened.
type equalizer struct {
	copySides
	condition store.Compare // that the target is closed for this copy
	opts      Options

	present map[string][sha256.Size]byte // key in the target -> hash of its value
	batch   store.Txn
	bytes   int // of batch
	written int
}

// run copies the records and returns the revision of the source that they are of.
func (e *equalizer) run(ctx context.Context) (rev int64, err error) {
	if err := e.listTarget(ctx); err != nil {
		return 0, err
	}
	rev, err = e.from.Backend.List(ctx, e.from.recordPrefix(), func(page []store.KV) error {
		for _, kv := range page {
			if err := e.put(ctx, kv); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("copy records from %s: %w", e.from.Name, err)
	}
	for key := range e.present { // what the source does not have
		if err := e.add(ctx, len(key), func(txn *store.Txn) { txn.Deletes = append(txn.Deletes, key) }); err != nil {
			return 0, err
		}
	}
	return rev, e.flush(ctx)
}

// listTarget notes what the target has.
func (e *equalizer) listTarget(ctx context.Context) error {
	e.present = map[string][sha256.Size]byte{}
	_, err := e.to.Backend.List(ctx, e.to.recordPrefix(), func(page []store.KV) error {
		for _, kv := range page {
			if !store.IsMetaKey(e.to.Prefix, kv.Key) {
				e.present[strings.Clone(kv.Key)] = sha256.Sum256(kv.Value)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the records of %s: %w", e.to.Name, err)
	}
	return nil
}

// put writes a record unless the target has it already.
func (e *equalizer) put(ctx context.Context, kv store.KV) error {
	if store.IsMetaKey(e.from.Prefix, kv.Key) {
		return nil
	}
	key := e.to.recordPrefix() + strings.TrimPrefix(kv.Key, e.from.recordPrefix())
	have, exists := e.present[key]
	delete(e.present, key)
	if exists && have == sha256.Sum256(kv.Value) {
		return nil
	}
	return e.add(ctx, len(key)+len(kv.Value), func(txn *store.Txn) {
		txn.Puts = append(txn.Puts, store.KV{Key: key, Value: kv.Value})
	})
}

// add puts a write into the batch, which is sent first when it would become too large.
func (e *equalizer) add(ctx context.Context, bytes int, write func(*store.Txn)) error {
	limits := e.to.Backend.Limits()
	full := len(e.batch.Puts)+len(e.batch.Deletes) >= min(maxBatchRecords, limits.MaxOps)
	if full || e.bytes+bytes > limits.MaxBytes {
		if err := e.flush(ctx); err != nil {
			return err
		}
	}
	write(&e.batch)
	e.bytes += bytes
	return nil
}

// flush sends the batch. A transaction with an unknown outcome is sent again: it writes the same.
func (e *equalizer) flush(ctx context.Context) error {
	n := len(e.batch.Puts) + len(e.batch.Deletes)
	if n == 0 {
		return nil
	}
	e.batch.Compares = []store.Compare{e.condition}
	for deadline := e.opts.Now().Add(batchRetryTime); ; {
		_, err := e.to.Backend.Commit(ctx, e.batch)
		switch {
		case err == nil:
			e.written += n
			e.opts.Progress(e.written)
			e.batch, e.bytes = store.Txn{}, 0
			return nil
		case errors.Is(err, store.ErrConflict):
			return fmt.Errorf("%s: %w", e.to.Name, errTakenOver)
		case errors.Is(err, store.ErrInvalid), e.opts.Now().After(deadline):
			return fmt.Errorf("write records to %s: %w", e.to.Name, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(batchRetryPause):
		}
	}
}
