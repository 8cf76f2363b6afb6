package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
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
		n.VM = vmOf(status.VM, n.VM)
	}
	if status.Script != nil {
		n.Script = scriptOf(status.Script)
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
	next.settle(now)
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

// Report processes the statuses that a node reports of its instances.
func (c *Controller) Report(ctx context.Context, credential string, req api.Report) (api.ReportAnswer, error) {
	var answer api.ReportAnswer
	node, err := c.authenticate(req.NodeID, credential)
	if errors.Is(err, errRemoved) {
		return answer, nil // its next poll reports that; none of this counts any longer
	}
	if err != nil {
		return answer, err
	}
	if err := nodeinput.Report(&req); err != nil {
		return answer, err
	}
	s := c.link.session(node.ID)
	if s == nil { // removed a moment ago
		return answer, nil
	}
	if err := s.mayReport(req.BootID, c.now()); err != nil {
		return answer, err
	}
	if node.HostFixed {
		reachedUnder(node.Host, req.Statuses)
	}
	statuses, err := c.placedHere(ctx, node.ID, req.Statuses)
	if err != nil {
		return answer, err
	}
	if err := c.applyStatuses(ctx, s, statuses); err != nil || len(req.CacheJobs) == 0 {
		return answer, err
	}
	return answer, c.applyCacheJobs(ctx, s, req.CacheJobs)
}

// reachedUnder sets the address that an operator has configured in place of the node's own.
func reachedUnder(host string, statuses []api.InstanceStatus) {
	for _, status := range statuses {
		if status.VM != nil {
			status.VM.HostIP = host
		}
	}
}

// statusAttempts is how often a transaction that lost a race is tried.
const statusAttempts = 20

// placedHere returns the last status of each instance that is placed on the node under the claim of
// the status. The others are ignored: an orphaned VM is handled when the node sends its inventory.
// However many there are, they cost one read of the store.
func (c *Controller) placedHere(
	ctx context.Context, node string, statuses []api.InstanceStatus,
) ([]api.InstanceStatus, error) {
	elsewhere := func(s api.InstanceStatus) bool {
		inst, _, ok := c.tables.Instances.Get(s.InstanceID)
		return !ok || inst.NodeID != node || inst.Claim != s.Claim
	}
	statuses = lastOfEach(statuses)
	if !slices.ContainsFunc(statuses, elsewhere) {
		return statuses, nil
	}
	if err := c.db.UpToDate(ctx); err != nil { // another replica may have placed one a moment ago
		return nil, farm.Unavailable(err, "The store cannot be reached; try again")
	}
	return slices.DeleteFunc(statuses, elsewhere), nil
}

// applyStatuses writes the changes of statuses. If they only describe, and the node has described
// too often, they are written later.
func (c *Controller) applyStatuses(ctx context.Context, s *session, statuses []api.InstanceStatus) error {
	moves, describes := false, map[string]api.InstanceStatus{}
	for _, status := range statuses {
		switch c.meaning(status) {
		case transition:
			moves = true
		case description:
			describes[status.InstanceID] = status
		}
	}
	if !moves && len(describes) == 0 {
		return nil
	}
	if !moves && !c.mayWrite(ctx, s, func(w *pacedWrites) { w.addStatuses(describes) }) {
		return nil
	}
	late := s.takeStatuses() // which the node considers accepted
	err := c.writeStatuses(ctx, s.node, lastOfEach(slices.Concat(late, statuses)))
	if err != nil {
		c.putBack(ctx, s, late)
	}
	return err
}

// writeStatuses writes the changes of statuses, as many at a time as fit.
func (c *Controller) writeStatuses(ctx context.Context, node string, statuses []api.InstanceStatus) error {
	for len(statuses) > 0 {
		done, err := c.applySome(ctx, node, statuses)
		if err != nil {
			return err
		}
		statuses = statuses[done:]
	}
	return nil
}

// lastOfEach keeps the last status of every instance: a status is complete.
func lastOfEach(statuses []api.InstanceStatus) []api.InstanceStatus {
	seen := map[string]bool{}
	var last []api.InstanceStatus
	for _, status := range slices.Backward(statuses) {
		if record.ValidID(status.InstanceID) && !seen[status.InstanceID] {
			last = append(last, status)
		}
		seen[status.InstanceID] = true
	}
	return last
}

// applySome writes the first of the statuses, as many as one transaction fits, and returns their
// number.
func (c *Controller) applySome(ctx context.Context, node string, statuses []api.InstanceStatus) (done int, err error) {
	for attempt := range statusAttempts {
		b, err := c.batch(ctx, node, statuses, attempt > 0)
		if err != nil || len(b.Changes) == 0 {
			return b.done, err
		}
		if err = c.store.Commit(ctx, b.Changes...); !errors.Is(err, store.ErrConflict) {
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
func (c *Controller) batch(
	ctx context.Context, node string, statuses []api.InstanceStatus, fresh bool,
) (statusBatch, error) {
	var b statusBatch
	for _, status := range statuses {
		room, err := c.addStatus(ctx, &b, node, status, fresh)
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
func (c *Controller) addStatus(
	ctx context.Context, b *statusBatch, node string, status api.InstanceStatus, fresh bool,
) (bool, error) {
	inst, rev, err := c.instanceRev(ctx, status.InstanceID, fresh)
	if err != nil || inst == nil || inst.NodeID != node || inst.Claim != status.Claim {
		return true, err // it has no matching record, which a restore can cause for any VM: the inventory deals with it
	}
	w := work{inst: inst, rev: rev}
	if inst.Task != nil && inst.Task.Kind == farm.TaskSave {
		if w.save, w.saveRev, err = c.saveRev(ctx, inst.Task.ID, fresh); err != nil {
			return true, err
		}
	}
	next := advance(w, status, c.now())
	if next.inst != inst {
		changes := c.changes(w, next)
		if err := record.Fits(changes); err != nil {
			c.leaveOut(ctx, node, inst.ID, err)
			return true, nil
		}
		if !b.Add(changes...) {
			return false, nil
		}
	}
	if next.save != w.save && next.save.Script != w.save.Script {
		if err := c.keepOutput(ctx, next.save.ID, status.Task.Script); err != nil {
			return true, err
		}
	}
	return true, nil
}

// leaveOut logs that a status of a node was left out because no transaction can hold it: the other
// statuses of the same report must not wait for it.
func (c *Controller) leaveOut(ctx context.Context, node, instance string, why error) {
	if count, due := c.unheard.Due(1, c.now()); due {
		c.log.ErrorContext(ctx, "instance status dropped: it is too large to store", "alarm", "status_dropped",
			"node", node, "instance", instance, "count", count, "error", why)
	}
}

// changes returns the changes that a status caused.
func (c *Controller) changes(old, next work) []store.Change {
	id := old.inst.ID
	changes := []store.Change{store.Put(c.tables.Instances, id, next.inst, store.IfRev(old.rev))}
	if next.inst.State == farm.Terminated && next.inst.Started.IsZero() { // it never started
		changes = c.archiveInstance(next.inst, old.rev)
	}
	if next.save != old.save {
		changes = append(changes, store.Put(c.tables.Saves, next.save.ID, next.save, store.IfRev(old.saveRev)))
	}
	return changes
}

func (c *Controller) saveRev(ctx context.Context, id string, fresh bool) (*farm.SaveRequest, int64, error) {
	if s, rev, ok := c.tables.Saves.Get(id); ok && !fresh {
		return s, rev, nil
	}
	return c.tables.Saves.GetLinearizable(ctx, id)
}

func (c *Controller) instanceRev(ctx context.Context, id string, fresh bool) (*farm.Instance, int64, error) {
	if inst, rev, ok := c.tables.Instances.Get(id); ok && !fresh {
		return inst, rev, nil
	}
	return c.tables.Instances.GetLinearizable(ctx, id)
}
