package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// phaseEvents maps a node's phase to the events of an instance. A phase includes the events of
// those before it, since reports in between may have been lost or merged; events that an instance
// already had do nothing.
var phaseEvents = map[api.Phase][]farm.InstanceEvent{
	api.PhaseAccepted:   nil,
	api.PhasePulling:    {farm.PullProgress},
	api.PhaseStarting:   {farm.Pulled},
	api.PhaseRunning:    {farm.VMStarted},
	api.PhaseScriptOK:   {farm.VMStarted, farm.ScriptOK},
	api.PhaseFailed:     {farm.StartFailed},
	api.PhaseStopped:    {farm.VMStarted, farm.VMStoppedEvent},
	api.PhaseVanished:   {farm.VMStarted, farm.VMVanished},
	api.PhaseTerminated: {farm.TerminatedEvent},
}

// ended are the phases in which a node has nothing left of an instance.
var ended = map[api.Phase]bool{api.PhaseFailed: true, api.PhaseVanished: true, api.PhaseTerminated: true}

// eventsOf returns the events of a status for an instance. A failed script depends on its handler;
// a termination that was not requested is a VM that vanished.
func eventsOf(inst *farm.Instance, status api.InstanceStatus) []farm.InstanceEvent {
	failed := farm.ScriptFailed(inst.Options.ScriptOnFailure)
	switch {
	case status.Phase == api.PhaseScriptFailed:
		return []farm.InstanceEvent{farm.VMStarted, failed}
	case status.Phase == api.PhaseScriptEnded:
		return []farm.InstanceEvent{farm.VMStarted, failed, farm.ScriptStopped}
	case status.Phase == api.PhaseTerminated && inst.State != farm.Terminating:
		return phaseEvents[api.PhaseVanished]
	default:
		return phaseEvents[status.Phase]
	}
}

// advance returns an instance and its save after a status of its node; the same records when the
// status changes nothing. A final status is accepted whatever its number: a node that lost its
// journal counts from the start again. The result of a task is applied before the phase: a save
// that failed leads back to Started, and only from there to the state of the phase.
func advance(w work, status api.InstanceStatus, now time.Time) work {
	inst := w.inst
	old := status.No <= inst.StatusNo && status.Phase != api.PhaseTerminated
	if old || inst.State == farm.Terminated {
		return w
	}
	n := inst.Clone()
	n.StatusNo, n.Updated = max(status.No, inst.StatusNo), now
	if status.VM != nil {
		n.VM = nodeinput.VMInfo(status.VM, n.VM)
	}
	if status.Script != nil {
		n.Script = nodeinput.ScriptResult(status.Script)
	}
	next := work{inst: n, save: w.save}
	if ended[status.Phase] {
		n.Recall = false
	}
	if status.Task != nil {
		next.follow(*status.Task, now)
	}
	for _, event := range eventsOf(n, status) {
		to, ok := farm.NextInstanceState(n.State, event)
		if !ok {
			continue
		}
		n.Enter(to, now)
		settle(n, event, status, now)
	}
	n.FinishTask()
	next.save = next.save.AfterInstance(n, now)
	if next.save == w.save && sameButCount(inst, n) {
		return w
	}
	return next
}

// sameButCount reports whether two records differ in nothing but the status number and the time,
// which alone do not justify a write.
func sameButCount(a, b *farm.Instance) bool {
	if a.State != b.State {
		return false
	}
	x := b.Clone()
	x.StatusNo, x.Updated = a.StatusNo, a.Updated
	return reflect.DeepEqual(a, x)
}

// settle changes the fields that depend on an event.
func settle(n *farm.Instance, event farm.InstanceEvent, status api.InstanceStatus, now time.Time) {
	switch event {
	case farm.PullProgress:
		n.Progress, n.Message = min(max(status.Progress, 0), 1), ""
	case farm.Pulled:
		if n.Progress > 0 { // else it was cached on the node: no progress to report
			n.Progress = 1
		}
	case farm.VMStarted:
		if n.Started.IsZero() {
			n.Started = now
		}
		n.Progress, n.Message = 1, ""
	case farm.ScriptFailedStop, farm.ScriptFailedKeep, farm.ScriptFailedDelete:
		n.Message = scriptMessage(n.Script, status.Message)
	case farm.StartFailed:
		n.Message, n.VM = firstOf(status.Message, "The VM could not be started"), nil
	case farm.VMStoppedEvent:
		n.Message = firstOf(status.Message, "The VM stopped without being asked to")
		markVM(n, farm.VMStopped, now)
	case farm.VMVanished:
		n.Message = firstOf(n.Message, status.Message, "VM no longer exists on its node")
		markVM(n, farm.VMDeleted, now)
	case farm.TerminatedEvent:
		n.Finished = now
		markVM(n, farm.VMDeleted, now)
	}
}

func scriptMessage(r *farm.ScriptResult, said string) string {
	if said != "" || r == nil {
		return firstOf(said, "startup script failed")
	}
	return fmt.Sprintf("startup script exit code %d", r.Code)
}

func markVM(n *farm.Instance, status farm.VMStatus, now time.Time) {
	if n.VM == nil || n.VM.Status == status {
		return
	}
	vm := *n.VM
	vm.Status = status
	if vm.Stopped.IsZero() || vm.Stopped.Before(vm.Started) {
		vm.Stopped = now
	}
	n.VM = &vm
}

// statusAttempts is how often a transaction that lost a race is tried.
const statusAttempts = 20

// statusWriter applies what nodes report to the records of instances.
type statusWriter struct {
	c       *Controller
	db      record.DB
	dropped record.LogLimiter // statuses that no transaction can hold
}

var _ nodelink.Instances = (*statusWriter)(nil)

// ChangeOf implements nodelink.Instances, by the records as this replica has them. A transition can
// happen a bounded number of times for each order: a change of state, but not that between
// Scheduling and Pulling nor that of a stopped VM that runs again; the end of what uses capacity on
// the node, of a task or of a recall; the first status of a VM before its start, or of the result
// of a script.
func (w *statusWriter) ChangeOf(status api.InstanceStatus) nodelink.StatusChange {
	inst, _, ok := w.db.Tables.Instances.Get(status.InstanceID)
	if !ok {
		return nodelink.NoChange
	}
	old := work{inst: inst}
	if inst.Task != nil && inst.Task.Kind == farm.TaskSave {
		if old.save, _, ok = w.db.Tables.Saves.Get(inst.Task.ID); !ok {
			return nodelink.Transition // the store has it
		}
	}
	next := advance(old, status, w.db.Now())
	if next == old {
		return nodelink.NoChange
	}
	n := next.inst
	pulls := func(s farm.InstanceState) bool { return s == farm.Scheduling || s == farm.Pulling }
	again := inst.State == farm.Stopped && (n.State == farm.Started || n.State == farm.Stopping)
	switch {
	case n.State != inst.State && !(pulls(n.State) && pulls(inst.State)) && !again,
		inst.UsesCapacity() && !n.UsesCapacity(),
		(n.Task == nil) != (inst.Task == nil), n.Recall != inst.Recall,
		n.VM != nil && inst.VM == nil && inst.Started.IsZero(), n.Script != nil && inst.Script == nil:
		return nodelink.Transition
	case old.save != nil &&
		(next.save.Status != old.save.Status || (next.save.Script == nil) != (old.save.Script == nil)):
		return nodelink.Transition
	}
	return nodelink.Description
}

// Resume implements nodelink.Instances.
func (w *statusWriter) Resume(ctx context.Context, node string) {
	for _, inst := range w.db.Tables.Instances.Where(record.ByNode, node) {
		if inst.Lost.IsZero() {
			continue
		}
		err := w.c.modify(ctx, w.db.Store, inst.ID, func(i *farm.Instance) (*farm.Instance, error) {
			return i.AfterNodeBack(w.db.Now()), nil
		})
		if err != nil {
			w.db.Log.WarnContext(ctx, "restoring an instance that its node reported again failed", "instance", inst.ID,
				"error", err)
		}
	}
}

// Script implements nodelink.Instances.
func (w *statusWriter) Script(ctx context.Context, inst *farm.Instance) ([]byte, error) {
	return w.c.payloads.Script(ctx, inst)
}

// Apply writes the changes of statuses, as many at a time as fit.
func (w *statusWriter) Apply(ctx context.Context, node string, statuses []api.InstanceStatus) error {
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
func (w *statusWriter) applySome(
	ctx context.Context, node string, statuses []api.InstanceStatus,
) (done int, err error) {
	for attempt := range statusAttempts {
		b, err := w.batch(ctx, node, statuses, attempt > 0)
		if err != nil || len(b.Changes) == 0 {
			return b.done, err
		}
		if err = w.db.Store.Commit(ctx, b.Changes...); !errors.Is(err, store.ErrConflict) {
			return b.done, err
		}
	}
	return 0, store.ErrConflict
}

// statusBatch is the changes of some statuses of one node, in one transaction.
type statusBatch struct {
	record.Txn
	done int // processed statuses
}

// batch gathers the changes of the statuses; with fresh, it reads the records from the store
// itself.
func (w *statusWriter) batch(
	ctx context.Context, node string, statuses []api.InstanceStatus, fresh bool,
) (statusBatch, error) {
	var b statusBatch
	for _, status := range statuses {
		room, err := w.addStatus(ctx, &b, node, status, fresh)
		if err != nil {
			return b, err
		}
		if !room {
			break
		}
		b.done++
	}
	return b, nil
}

// addStatus adds the changes of one status, and reports whether they fit into the transaction.
func (w *statusWriter) addStatus(
	ctx context.Context, b *statusBatch, node string, status api.InstanceStatus, fresh bool,
) (bool, error) {
	inst, rev, err := w.instanceRev(ctx, status.InstanceID, fresh)
	if err != nil || inst == nil || inst.NodeID != node || inst.Claim != status.Claim {
		return true, err // it has no matching record, which a restore can cause for any VM: the inventory deals with it
	}
	old := work{inst: inst, rev: rev}
	if inst.Task != nil && inst.Task.Kind == farm.TaskSave {
		if old.save, old.saveRev, err = w.saveRev(ctx, inst.Task.ID, fresh); err != nil {
			return true, err
		}
	}
	next := advance(old, status, w.db.Now())
	if next.inst != inst {
		changes := w.changes(old, next)
		if err := record.Fits(changes); err != nil {
			w.leaveOut(ctx, node, inst.ID, err)
			return true, nil
		}
		if !b.Add(changes...) {
			return false, nil
		}
	}
	if next.save != old.save && next.save.Script != old.save.Script {
		if err := w.c.payloads.StoreOutput(ctx, next.save.ID, status.Task.Script); err != nil {
			return true, err
		}
	}
	return true, nil
}

// leaveOut logs that a status of a node was left out because no transaction can hold it: the other
// statuses of the same report must not wait for it.
func (w *statusWriter) leaveOut(ctx context.Context, node, instance string, why error) {
	if count, due := w.dropped.Due(1, w.db.Now()); due {
		w.db.Log.ErrorContext(ctx, "instance status of a node dropped: too large to store", "alarm", "status_dropped",
			"node", node, "instance", instance, "count", count, "error", why)
	}
}

// changes returns the changes that a status caused.
func (w *statusWriter) changes(old, next work) []store.Change {
	id := old.inst.ID
	changes := []store.Change{store.Put(w.db.Tables.Instances, id, next.inst, store.IfRev(old.rev))}
	if next.inst.State == farm.Terminated && next.inst.Started.IsZero() { // it never started
		changes = w.c.archiveInstance(next.inst, old.rev)
	}
	if next.save != old.save {
		changes = append(changes, store.Put(w.db.Tables.Saves, next.save.ID, next.save, store.IfRev(old.saveRev)))
	}
	return changes
}

func (w *statusWriter) saveRev(ctx context.Context, id string, fresh bool) (*farm.SaveRequest, int64, error) {
	if s, rev, ok := w.db.Tables.Saves.Get(id); ok && !fresh {
		return s, rev, nil
	}
	return w.db.Tables.Saves.GetLinearizable(ctx, id)
}

func (w *statusWriter) instanceRev(ctx context.Context, id string, fresh bool) (*farm.Instance, int64, error) {
	if inst, rev, ok := w.db.Tables.Instances.Get(id); ok && !fresh {
		return inst, rev, nil
	}
	return w.db.Tables.Instances.GetLinearizable(ctx, id)
}
