package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// phaseEvents says what a node's phase means for an instance. A phase brings the
// events of those before it, since reports in between may have been lost or
// merged; what an instance has behind it already is void there.
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

// eventsOf gives the events of a status for an instance. A failed script depends on
// its handler; a termination that nobody asked for is a VM that vanished.
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

// advance gives the record of an instance after a status of its node; the same
// record when the status says nothing new. The end is believed whatever its number:
// a node that lost its journal counts anew.
func advance(inst *farm.Instance, status api.InstanceStatus, now time.Time) *farm.Instance {
	old := status.No <= inst.StatusNo && status.Phase != api.PhaseTerminated
	if old || inst.State == farm.Terminated {
		return inst
	}
	n := inst.Clone()
	n.StatusNo, n.Updated = max(status.No, inst.StatusNo), now
	if status.VM != nil {
		n.VM = vmOf(status.VM, n.VM)
	}
	if status.Script != nil {
		n.Script = scriptOf(status.Script)
	}
	for _, event := range eventsOf(inst, status) {
		to, ok := farm.NextInstance(n.State, event)
		if !ok {
			continue
		}
		n.State = to
		settle(n, event, status, now)
	}
	return n
}

// settle changes the fields that go with an event.
func settle(n *farm.Instance, event farm.InstanceEvent, status api.InstanceStatus, now time.Time) {
	switch event {
	case farm.PullProgress:
		n.Progress, n.Message = min(max(status.Progress, 0), 1), ""
	case farm.Pulled:
		n.Progress = 1
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
		n.Message = firstOf(n.Message, status.Message, "The VM is not on its node any more")
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

// Report takes over what a node says of its instances.
func (c *Controller) Report(ctx context.Context, credential string, req api.Report) (api.ReportAnswer, error) {
	var answer api.ReportAnswer
	node, err := c.authenticate(req.NodeID, credential)
	if err != nil {
		return answer, err
	}
	if len(req.Statuses) > maxStatuses {
		return answer, farm.Invalid("statuses", "must have at most %d elements", maxStatuses)
	}
	for start := 0; start < len(req.Statuses); start += statusChunk {
		part := req.Statuses[start:min(start+statusChunk, len(req.Statuses))]
		refused, err := c.applyStatuses(ctx, node.ID, part)
		if err != nil {
			return answer, err
		}
		answer.Refused = append(answer.Refused, refused...)
	}
	return answer, nil
}

const (
	// statusChunk is how many statuses go into one transaction, beside the node.
	statusChunk = 20
	// statusAttempts is how often a transaction that lost a race is made anew.
	statusAttempts = 20
)

// applyStatuses writes what the statuses mean and frees the slots of instances
// that take none any more, in one transaction.
func (c *Controller) applyStatuses(ctx context.Context, node string, statuses []api.InstanceStatus) (refused []api.Ack, err error) {
	for attempt := range statusAttempts {
		var changes []store.Change
		changes, refused, err = c.statusChanges(ctx, node, statuses, attempt > 0)
		if err != nil || len(changes) == 0 {
			return refused, err
		}
		if err = c.store.Commit(ctx, changes...); !errors.Is(err, store.ErrConflict) {
			return refused, err
		}
	}
	return nil, err
}

func (c *Controller) statusChanges(ctx context.Context, node string, statuses []api.InstanceStatus, fresh bool) (
	changes []store.Change, refused []api.Ack, err error,
) {
	now := c.now()
	var freed []string
	seen := map[string]bool{}
	for _, status := range slices.Backward(statuses) { // the last status of an instance says it all
		if seen[status.InstanceID] || !validID(status.InstanceID) {
			continue
		}
		seen[status.InstanceID] = true
		inst, rev, err := c.instanceRev(ctx, status.InstanceID, fresh)
		if err != nil {
			return nil, nil, err
		}
		if inst == nil { // nobody's: the held list deals with it
			continue
		}
		if inst.NodeID != node || inst.Claim != status.Claim {
			refused = append(refused, api.Ack{InstanceID: status.InstanceID, Claim: status.Claim})
			continue
		}
		next := advance(inst, status, now)
		if !next.HoldsSlot() {
			freed = append(freed, inst.ID)
		}
		switch {
		case next == inst:
		case next.State == farm.Terminated && next.Started.IsZero(): // what never started just disappears
			changes = append(changes, store.Delete(c.tables.Instances, inst.ID, store.IfRev(rev)))
		default:
			changes = append(changes, store.Put(c.tables.Instances, inst.ID, next, store.IfRev(rev)))
		}
	}
	change, err := c.freeSlots(ctx, node, freed, fresh)
	if err != nil {
		return nil, nil, err
	}
	return append(changes, change...), refused, nil
}

func (c *Controller) instanceRev(ctx context.Context, id string, fresh bool) (*farm.Instance, int64, error) {
	if inst, rev, ok := c.tables.Instances.Get(id); ok && !fresh {
		return inst, rev, nil
	}
	return c.tables.Instances.GetLinearizable(ctx, id)
}

// freeSlots takes instances out of their node's allocations; no change when they
// are not in there.
func (c *Controller) freeSlots(ctx context.Context, id string, instances []string, fresh bool) ([]store.Change, error) {
	node, rev, ok := c.tables.Nodes.Get(id)
	if fresh {
		var err error
		if node, rev, err = c.tables.Nodes.GetLinearizable(ctx, id); err != nil {
			return nil, err
		}
		ok = node != nil
	}
	if !ok {
		return nil, nil
	}
	var n *farm.Node
	for _, inst := range instances {
		if _, held := node.Allocs[inst]; !held {
			continue
		}
		if n == nil {
			n = node.Clone()
		}
		delete(n.Allocs, inst)
	}
	if n == nil {
		return nil, nil
	}
	return []store.Change{store.Put(c.tables.Nodes, id, n, store.IfRev(rev))}, nil
}
