package storeadmin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/store"
)

// Result is what a copy has done.
type Result struct {
	Records  int    // in the target
	Written  int    // by this run; fewer when an earlier run was interrupted
	Epoch    string // of the target
	Replaced string // backup of the records that were replaced; empty: there were none
}

// Migrate moves the records of one store to another, which must have none. Both are closed while it
// runs. In the end the target is open, with a new epoch. The source keeps its records and stays closed:
// two clouds with the same nodes would fight over them.
//
// It may be interrupted at any moment and run again. Cancel undoes an incomplete run.
func Migrate(ctx context.Context, from, to Side, opts Options) (done Result, err error) {
	opts = opts.withDefaults()
	epoch, err := store.ReadEpoch(ctx, from.Backend, from.Prefix)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", from.Name, err)
	}
	target, err := to.schema(ctx)
	if err != nil {
		return Result{}, err
	}
	complete := isCopyOf(target, epoch) // by an earlier run, which did not close the source
	if !complete {
		if err := checkTarget(ctx, to, target, from.Name); err != nil {
			return Result{}, err
		}
	}

	source, err := closeSource(ctx, from, to.Name, opts)
	if err != nil {
		return Result{}, err
	}
	if !complete {
		if target, err = closeForCopy(ctx, to, target, from.Name, opts); err != nil {
			return Result{}, err
		}
		target = target.WithVersion(source.Version())
		if done, err = copyAndOpen(ctx, copySides{from, to}, target, epoch, opts); err != nil {
			return Result{}, err
		}
	}
	if err := markMoved(ctx, from, source, to.Name, opts); err != nil {
		return Result{}, err
	}
	if done.Epoch, err = store.ReadEpoch(ctx, to.Backend, to.Prefix); err != nil {
		return Result{}, fmt.Errorf("%s: %w", to.Name, err)
	}
	done.Records, err = to.countRecords(ctx)
	return done, err
}

// isCopyOf reports whether a store is open with the records of the store that has an epoch.
func isCopyOf(target store.Schema, epoch string) bool {
	return target.Exists() && target.Err() == nil && epoch != "" && target.CopiedFrom() == epoch
}

// markMoved closes the source for as long as it exists.
func markMoved(ctx context.Context, from Side, source store.Schema, peer string, opts Options) error {
	moved := store.Transfer{State: store.TransferMoved, Peer: peer, StartedAt: opts.Now()}
	if _, err := source.Close(ctx, from.Backend, from.Prefix, moved); err != nil {
		return fmt.Errorf("%s: %w", from.Name, err)
	}
	return nil
}

// closeSource closes the source and waits for commits that are under way. Its records do not change after
// that. It closes one again that is closed already: only one process continues then, also besides a Cancel.
func closeSource(ctx context.Context, from Side, peer string, opts Options) (store.Schema, error) {
	source, err := from.schema(ctx)
	if err != nil {
		return store.Schema{}, err
	}
	if err := source.CompleteErr(); err != nil {
		return store.Schema{}, fmt.Errorf("%s: %w", from.Name, err)
	}
	switch t := source.Transfer(); {
	case t == nil:
		if err := from.checkUnused(ctx); err != nil {
			return store.Schema{}, err
		}
	case t.State == store.TransferMoved || !samePeer(t.Peer, peer):
		return store.Schema{}, fmt.Errorf("%s: %s", from.Name, t)
	}
	outgoing := store.Transfer{State: store.TransferOutgoing, Peer: peer, StartedAt: opts.Now()}
	if source, err = source.Close(ctx, from.Backend, from.Prefix, outgoing); err != nil {
		return store.Schema{}, fmt.Errorf("%s: %w", from.Name, err)
	}
	return source, opts.Settle(ctx)
}

// samePeer reports whether two names are of one store. Endpoints of a cluster may be in another order.
func samePeer(a, b string) bool {
	return slices.Equal(sortedEndpoints(a), sortedEndpoints(b))
}

func sortedEndpoints(name string) []string {
	list := strings.Split(strings.TrimPrefix(name, ClusterNamePrefix), EndpointSeparator)
	slices.Sort(list)
	return list
}

// ErrNotEmpty means that the target of a copy has records of another cloud.
var ErrNotEmpty = errors.New("the store already has records")

// checkTarget fails when a store may not become the target of a copy.
func checkTarget(ctx context.Context, to Side, target store.Schema, peer string) error {
	switch t := target.Transfer(); {
	case t == nil && target.Exists():
		return fmt.Errorf("%s: %w", to.Name, ErrNotEmpty)
	case t == nil, t.State == store.TransferMoved: // it is empty, or its records are elsewhere
	case t.State != store.TransferIncoming || !samePeer(t.Peer, peer):
		return fmt.Errorf("%s: %s", to.Name, t)
	}
	return to.checkUnused(ctx)
}

// closeForCopy closes the target, also when it is closed already: only one process continues then.
func closeForCopy(ctx context.Context, to Side, target store.Schema, peer string, opts Options) (store.Schema, error) {
	incoming := store.Transfer{State: store.TransferIncoming, Peer: peer, StartedAt: opts.Now()}
	closed, err := target.Close(ctx, to.Backend, to.Prefix, incoming)
	if err != nil {
		return store.Schema{}, fmt.Errorf("%s: %w", to.Name, err)
	}
	return closed, nil
}

// maxCopyRounds bounds how often the source may change while it is copied.
const maxCopyRounds = 5

// errChanging means that the source changes although it is closed.
var errChanging = errors.New("its records change while they are copied: stop all controllers")

// copySides are the stores of a copy.
type copySides struct{ from, to Side }

// copyAndOpen makes the records of the target those of the source, and opens the target.
func copyAndOpen(
	ctx context.Context, sides copySides, target store.Schema, copiedFrom string, opts Options,
) (done Result, err error) {
	from, to := sides.from, sides.to
	for round := 0; ; round++ {
		if round == maxCopyRounds {
			return Result{}, fmt.Errorf("%s: %w", from.Name, errChanging)
		}
		e := equalizer{copySides: sides, condition: target.Condition(to.Prefix), opts: opts}
		rev, err := e.run(ctx)
		if err != nil && !errors.Is(err, store.ErrCompacted) {
			return Result{}, err
		}
		done.Written += e.written
		if err != nil {
			continue // the copy took longer than the source keeps a revision; less is left now
		}
		changed, err := from.changedSince(ctx, rev)
		if err != nil {
			return Result{}, err
		}
		if !changed {
			break
		}
	}
	done.Epoch = rand.Text()
	if _, err := target.Open(ctx, to.Backend, to.Prefix, done.Epoch, copiedFrom); err != nil {
		return Result{}, fmt.Errorf("%s: %w", to.Name, err)
	}
	return done, nil
}

// changedSince reports whether a record was written after a revision. A deletion is not seen: what
// deletes records is fenced by the lease of a leader, and there is none.
func (s Side) changedSince(ctx context.Context, rev int64) (changed bool, err error) {
	_, err = s.Backend.List(ctx, s.recordPrefix(), func(page []store.KV) error {
		for _, kv := range page {
			changed = changed || kv.ModRev > rev
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("%s: list the records: %w", s.Name, err)
	}
	return changed, nil
}

// Cancel undoes a migration that is not complete: the source is open again with its records, and what
// was copied into the target is deleted.
func Cancel(ctx context.Context, from, to Side, opts Options) error {
	opts = opts.withDefaults()
	source, err := from.schema(ctx)
	if err != nil {
		return err
	}
	if t := source.Transfer(); t == nil || t.State != store.TransferOutgoing || !samePeer(t.Peer, to.Name) {
		return fmt.Errorf("%s: no incomplete migration to %s found", from.Name, to.Name)
	}
	target, err := to.schema(ctx)
	if err != nil {
		return err
	}
	switch t := target.Transfer(); {
	case t != nil && t.State == store.TransferIncoming && !samePeer(t.Peer, from.Name):
		return fmt.Errorf("%s: it is closed by a migration from %s, not from %s: cancel it with the settings of "+
			"that migration", to.Name, t.Peer, from.Name)
	case t != nil && t.State == store.TransferIncoming:
		if err := deleteCopy(ctx, from, to, target, opts); err != nil {
			return err
		}
	case target.Exists() && t == nil:
		return fmt.Errorf("%s: the copy is complete and may be in use; run the migration again to end it", to.Name)
	}
	if _, err := source.Reopen(ctx, from.Backend, from.Prefix); err != nil {
		return fmt.Errorf("%s: %w", from.Name, err)
	}
	return nil
}

// deleteCopy deletes all records of a closed target, the schema record last.
func deleteCopy(ctx context.Context, from, to Side, target store.Schema, opts Options) error {
	target, err := closeForCopy(ctx, to, target, from.Name, opts)
	if err != nil {
		return err
	}
	e := equalizer{copySides: copySides{from, to}, condition: target.Condition(to.Prefix), opts: opts}
	if err := e.listTarget(ctx); err != nil {
		return err
	}
	for key := range e.present {
		if err := e.add(ctx, len(key), func(txn *store.Txn) { txn.Deletes = append(txn.Deletes, key) }); err != nil {
			return err
		}
	}
	if err := e.flush(ctx); err != nil {
		return err
	}
	condition := target.Condition(to.Prefix)
	if _, err := to.Backend.Commit(ctx, store.Txn{
		Compares: []store.Compare{condition}, Deletes: []string{condition.Key},
	}); err != nil {
		return fmt.Errorf("%s: delete the schema version: %w", to.Name, err)
	}
	return nil
}
