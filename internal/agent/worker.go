package agent

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/retry"
)

// errInstanceDone is returned by a step when nothing of its instance is left.
var errInstanceDone = errors.New("the instance has been removed")

const (
	retryFirst     = 200 * time.Millisecond
	retryMax       = 5 * time.Second
	observeTimeout = 10 * time.Second // to observe one VM
)

// runWorker repeats observe, decide, act until nothing of the instance is left or the agent ends. A step
// that failed for a reason of this host (a full disk, a driver that does not answer) is retried
// without a time limit.
func (a *Agent) runWorker(ctx context.Context, in *instance) {
	defer close(in.left)
	defer in.cancelEnding()
	pause := retry.New(retryFirst, retryMax)
	for ctx.Err() == nil && !in.isTakenOver() {
		s, vm, err := a.observe(ctx, in)
		if err == nil {
			err = a.runAction(ctx, in, decideAction(s), vm)
		}
		switch {
		case err == nil || errors.Is(err, errEnding):
			pause.Reset()
			continue
		case errors.Is(err, errInstanceDone):
			return
		case ctx.Err() != nil:
			return
		}
		a.log.Error("step failed; retrying", "instance_id", in.id, "phase", string(s.Phase), "error", err)
		select {
		case <-ctx.Done():
		case <-in.wake:
		case <-time.After(pause.Next()):
		}
	}
}

// runAction carries out an action, unless the agent is about to be replaced by another version and its
// end would break the action.
func (a *Agent) runAction(ctx context.Context, in *instance, next action, vm hv.VM) error {
	leave, ok := a.registerBlocker(next, in)
	if !ok {
		return a.waitForChange(ctx, in, vm) // a termination wakes it
	}
	defer leave()
	return actionSteps[next](a, ctx, in, vm)
}

// observe reads everything a decision depends on.
func (a *Agent) observe(ctx context.Context, in *instance) (observation, hv.VM, error) {
	ask, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	state := in.snapshot()
	s := observation{
		Phase: state.Phase, Ending: state.Ending, Script: in.scriptState(state),
		Task: taskConditionOf(state.Task),
	}
	if start := in.order.Start; start != nil {
		s.Startable = a.isStartable(start.ContentID)
	}
	vm, err := a.opts.Driver.Get(ask, in.id)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		return s, hv.VM{}, nil
	case err != nil:
		return s, hv.VM{}, err
	case vm.Status == hv.Running:
		s.VM = vmUp
	default:
		s.VM = vmDown
	}
	return s, vm, nil
}

// waitForChange waits for a change, after reporting the facts of the VM.
func (a *Agent) waitForChange(ctx context.Context, in *instance, vm hv.VM) error {
	if err := a.reportVMFacts(in, vm); err != nil {
		return err
	}
	if err := a.cleanUpTask(in); err != nil {
		return err
	}
	a.haveShellWait(ctx, in)
	select {
	case <-in.wake:
	case <-ctx.Done():
		in.awaitShellEnd()
	}
	return nil
}

// reportVMFacts reports the facts of a VM when they differ from the last report.
func (a *Agent) reportVMFacts(in *instance, vm hv.VM) error {
	said := in.snapshot().VM
	now := a.currentVMFacts(vm, said)
	if sameVM(said, now) {
		return nil
	}
	return a.storeAndReport(in, func(s *journal.State) { s.VM = now })
}

// currentVMFacts returns the current facts of a VM; a zero vm no longer exists, and its last facts remain. A
// driver that has just found the VM again need not know its address: the address of the same run is
// still valid.
func (a *Agent) currentVMFacts(vm hv.VM, said *api.NodeVM) *api.NodeVM {
	if vm.ID == "" {
		return factsOfGoneVM(said)
	}
	now := a.linkVM(vm)
	if now.IP == "" && said != nil && now.Status == said.Status && now.Started.Equal(said.Started) {
		now.IP = said.IP
	}
	return now
}

// forgetInstance drops an instance of which nothing is left.
func (a *Agent) forgetInstance(in *instance) error {
	if err := a.opts.Journal.Remove(in.id); err != nil {
		return err
	}
	if start := in.order.Start; start != nil {
		a.opts.Templates.Unpin(start.ContentID, in.id)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.instances, in.id)
	a.removeVMLocked(in.id)
	a.recordEndedLocked(in.id, in.snapshot().Claim)
	a.log.Info("instance removed from this node", "instance_id", in.id)
	return errInstanceDone
}

// maxEndedClaims limits the list of instances that ended recently.
const maxEndedClaims = 1024

// recordEndedLocked records an ended instance, so that a late start order does not start it again.
func (a *Agent) recordEndedLocked(id, claim string) {
	if len(a.endedClaims) >= maxEndedClaims {
		clear(a.endedClaims)
	}
	a.endedClaims[id] = claim
}

// waitsForVM reports whether a phase expects the VM as it was last reported, so that a difference
// needs a new observation.
func waitsForVM(phase api.Phase) bool {
	switch phase {
	case api.PhaseRunning, api.PhaseScriptOK, api.PhaseScriptEnded, api.PhaseStopped:
		return true
	default:
		return false
	}
}
