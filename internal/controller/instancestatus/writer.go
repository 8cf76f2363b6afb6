package instancestatus

import (
	"context"
	"errors"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Options is what a Writer needs of other parts.
type Options struct {
	// Archive returns the changes that move an instance into the history.
	Archive func(inst *farm.Instance, rev int64) []store.Change
	// StoreOutput stores the output of a save's script. It may be called again with the same.
	StoreOutput func(ctx context.Context, request string, script *api.ScriptStatus) error
}

// Writer applies what nodes report to the records of instances.
type Writer struct {
	db      record.DB
	o       Options
	dropped record.LogLimiter // statuses that no transaction can hold
}

// NewWriter returns a writer to a database.
func NewWriter(db record.DB, o Options) *Writer { return &Writer{db: db, o: o} }

// ChangeOf classifies what a status changes, by the records as this replica has them. A transition can
// happen a bounded number of times for each order: a change of state, but not that between
// Scheduling and Pulling nor that of a stopped VM that runs again; the end of what uses capacity on
// the node, of a task or of a recall; the first status of a VM before its start, or of the result
// of a script.
func (w *Writer) ChangeOf(status api.InstanceStatus) record.StatusChange {
	inst, _, ok := w.db.Tables.Instances.Get(status.InstanceID)
	if !ok {
		return record.NoChange
	}
	old := state{inst: inst}
	if inst.Task != nil && inst.Task.Kind == farm.TaskSave {
		if old.save, _, ok = w.db.Tables.Saves.Get(inst.Task.ID); !ok {
			return record.Transition // the store has it
		}
	}
	next := apply(old, status, w.db.Now())
	if next == old {
		return record.NoChange
	}
	n := next.inst
	isPull := func(s farm.InstanceState) bool { return s == farm.Scheduling || s == farm.Pulling }
	runsAgain := inst.State == farm.Stopped && (n.State == farm.Started || n.State == farm.Stopping)
	switch {
	case n.State != inst.State && !(isPull(n.State) && isPull(inst.State)) && !runsAgain,
		inst.UsesCapacity() && !n.UsesCapacity(),
		(n.Task == nil) != (inst.Task == nil), n.StartAborted != inst.StartAborted,
		n.VM != nil && inst.VM == nil && inst.Started.IsZero(), n.Script != nil && inst.Script == nil:
		return record.Transition
	case old.save != nil &&
		(next.save.Status != old.save.Status || (next.save.Script == nil) != (old.save.Script == nil)):
		return record.Transition
	}
	return record.Description
}

// Resume lets the instances of a node that is back continue.
func (w *Writer) Resume(ctx context.Context, node string) {
	for _, inst := range w.db.Tables.Instances.Where(record.ByNode, node) {
		if inst.NodeLostAt.IsZero() {
			continue
		}
		_, err := store.Update(ctx, w.db.Store, w.db.Tables.Instances, inst.ID,
			func(i *farm.Instance) (*farm.Instance, error) {
				if i == nil {
					return nil, nil
				}
				return i.AfterNodeBack(w.db.Now()), nil
			})
		if err != nil {
			w.db.Log.WarnContext(ctx, "restoring an instance that its node reported again failed",
				"instance_id", inst.ID, "error", err)
		}
	}
}

// Apply writes the changes of statuses, as many at a time as fit.
func (w *Writer) Apply(ctx context.Context, node string, statuses []api.InstanceStatus) error {
	for len(statuses) > 0 {
		done, err := w.applySome(ctx, node, statuses)
		if err != nil {
			return err
		}
		statuses = statuses[done:]
	}
	return nil
}

// applySome writes the first of the statuses, as many as one transaction fits, and returns their
// number.
func (w *Writer) applySome(
	ctx context.Context, node string, statuses []api.InstanceStatus,
) (done int, err error) {
	for attempt := range record.TxnAttempts {
		b, err := w.gather(ctx, node, statuses, attempt > 0)
		if err != nil || len(b.Changes) == 0 {
			return b.done, err
		}
		if err = w.db.Store.Commit(ctx, b.Changes...); !errors.Is(err, store.ErrConflict) {
			return b.done, err
		}
	}
	return 0, store.ErrConflict
}

// batch is the changes of some statuses of one node, in one transaction.
type batch struct {
	record.Txn
	done int // processed statuses
}

// gather gathers the changes of the statuses; with fresh, it reads the records from the store
// itself.
func (w *Writer) gather(
	ctx context.Context, node string, statuses []api.InstanceStatus, fresh bool,
) (batch, error) {
	var b batch
	for _, status := range statuses {
		fits, err := w.addStatus(ctx, &b, node, status, fresh)
		if err != nil {
			return b, err
		}
		if !fits {
			break
		}
		b.done++
	}
	return b, nil
}

// addStatus adds the changes of one status, and reports whether they fit into the transaction.
func (w *Writer) addStatus(
	ctx context.Context, b *batch, node string, status api.InstanceStatus, fresh bool,
) (bool, error) {
	inst, rev, err := w.instanceRev(ctx, status.InstanceID, fresh)
	if err != nil || inst == nil || inst.NodeID != node || inst.Claim != status.Claim {
		return true, err // it has no matching record, which a restore can cause for any VM: the inventory deals with it
	}
	old := state{inst: inst, rev: rev}
	if inst.Task != nil && inst.Task.Kind == farm.TaskSave {
		if old.save, old.saveRev, err = w.saveRev(ctx, inst.Task.ID, fresh); err != nil {
			return true, err
		}
	}
	next := apply(old, status, w.db.Now())
	if next.inst != inst {
		changes := w.changes(old, next)
		if err := record.Fits(changes); err != nil {
			w.logDropped(ctx, node, inst.ID, err)
			return true, nil
		}
		if !b.Add(changes...) {
			return false, nil
		}
	}
	if next.save != old.save && next.save.Script != old.save.Script {
		if err := w.o.StoreOutput(ctx, next.save.ID, status.Task.Script); err != nil {
			return true, err
		}
	}
	return true, nil
}

// logDropped logs that a status of a node was left out because no transaction can hold it: the other
// statuses of the same report must not wait for it.
func (w *Writer) logDropped(ctx context.Context, node, instance string, why error) {
	if count, due := w.dropped.Due(1, w.db.Now()); due {
		w.db.Log.ErrorContext(ctx, "instance status of a node dropped: too large to store", "alarm", "status_dropped",
			"node_id", node, "instance_id", instance, "count", count, "error", why)
	}
}

// changes returns the changes that a status caused.
func (w *Writer) changes(old, next state) []store.Change {
	id := old.inst.ID
	changes := []store.Change{store.Put(w.db.Tables.Instances, id, next.inst, store.IfRev(old.rev))}
	if next.inst.State == farm.Terminated && next.inst.Started.IsZero() { // it never started
		changes = w.o.Archive(next.inst, old.rev)
	}
	if next.save != old.save {
		changes = append(changes, store.Put(w.db.Tables.Saves, next.save.ID, next.save, store.IfRev(old.saveRev)))
	}
	return changes
}

func (w *Writer) saveRev(ctx context.Context, id string, fresh bool) (*farm.SaveRequest, int64, error) {
	if s, rev, ok := w.db.Tables.Saves.Get(id); ok && !fresh {
		return s, rev, nil
	}
	return w.db.Tables.Saves.GetLinearizable(ctx, id)
}

func (w *Writer) instanceRev(ctx context.Context, id string, fresh bool) (*farm.Instance, int64, error) {
	if inst, rev, ok := w.db.Tables.Instances.Get(id); ok && !fresh {
		return inst, rev, nil
	}
	return w.db.Tables.Instances.GetLinearizable(ctx, id)
}
