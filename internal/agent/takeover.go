package agent

import (
	"context"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
)

// takeOver lets a start take over the VM of a standby. The VM keeps its id, which no caller has had before: what
// changes is the order, with its startup script, and the claim. Both change in one write of the journal. An agent
// that is killed before it gets the order once more; one that is killed after it continues with the new order. The
// worker of the standby ends first: immediately, or after the boot in progress, which is that of the start then.
func (a *Agent) takeOver(ctx context.Context, in *instance, o api.Order) error {
	next, err := a.replaceByTakeover(in, o)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.instances[in.id] = next
	a.mu.Unlock()
	a.outbox.add(in.id)
	a.log.Info("a start took over the VM of a standby", "instance_id", in.id)
	if next.snapshot().Phase == api.PhaseStarting {
		context.AfterFunc(next.ending, in.cancelEnding) //nolint:contextcheck // the worker lives longer than the request
	} else {
		in.cancelEnding() // ends what its worker waits for
	}
	in.wakeWorker()
	a.workers.Go(func() {
		<-in.left
		a.runWorker(ctx, next)
	})
	return nil
}

// replaceByTakeover makes the takeover durable and returns the instance that has the id from then on; its worker
// has to wait for the end of the one of in.
func (a *Agent) replaceByTakeover(in *instance, o api.Order) (*instance, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.state.Ending || in.takenOver {
		return nil, farm.Errorf(farm.CodeBusy, "the standby is ending; its VM cannot be taken over")
	}
	state := in.state.StateOfTakeover(&o)
	if err := a.writeLocked(in, state); err != nil {
		return nil, err
	}
	in.takenOver = true
	next := newInstance(journal.Entry{NodeID: a.opts.Identity.NodeID, Order: in.order, State: state})
	next.journaled = in.journaled
	next.inheritShellLocked(in)
	if state.Phase == api.PhaseRunning {
		a.holdStarted(next)
	}
	return next, nil
}

// isTakenOver reports whether a start has taken over the VM of this standby.
func (in *instance) isTakenOver() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.takenOver
}
