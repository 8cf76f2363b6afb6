package agent

import (
	"context"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
)

// acceptOrders journals orders and returns the acknowledgements of the durable ones. An order that is not
// durable is not acknowledged: the controller sends it again. Starts come first and terminations
// last, so that a response with both for one instance leaves nothing behind.
func (a *Agent) acceptOrders(ctx context.Context, orders []api.Order) []api.Ack {
	var acks []api.Ack
	for _, kind := range []api.OrderKind{api.OrderStart, api.OrderSave, api.OrderRestart, api.OrderTerminate} {
		for _, o := range orders {
			if o.Kind != kind {
				continue
			}
			err := a.acceptOrder(ctx, o)
			if err != nil {
				a.log.Error("accepting an order failed", "instance_id", o.InstanceID, "kind", string(o.Kind),
					"error", err)
				continue
			}
			acks = append(acks, api.Ack{InstanceID: o.InstanceID, Claim: o.Claim, Kind: o.Kind, Task: o.Task})
		}
	}
	return acks
}

func (a *Agent) acceptOrder(ctx context.Context, o api.Order) error {
	if err := journal.CheckID(o.InstanceID); err != nil {
		return err
	}
	in := a.instance(o.InstanceID)
	switch {
	case o.Kind == api.OrderTerminate && in == nil:
		return a.acceptRemoval(ctx, o)
	case o.Kind == api.OrderTerminate:
		a.log.Info("termination ordered", "instance_id", in.id)
		return a.orderTermination(in, o.Claim, false)
	case o.Kind != api.OrderStart:
		return a.acceptTask(in, o)
	case o.Start == nil:
		return farm.Invalid("start", "is required")
	case in == nil && a.recentlyEnded(o):
		// It was terminated here under this very claim: report that again and start nothing.
		return a.acceptRemoval(ctx, o)
	case in == nil:
		return a.acceptEntry(ctx, a.journalEntry(o, journal.State{Number: 1, Claim: o.Claim, Phase: api.PhaseAccepted}))
	case in.snapshot().Claim == o.Claim:
		a.outbox.add(in.id) // the controller may have lost the last report
		return a.retryJournalWrite(in)
	case o.Start.TakesOver != "" && in.snapshot().Claim == o.Start.TakesOver:
		return a.takeOver(ctx, in, o)
	}
	// A controller that was restored from a backup may have placed the instance again. An order to
	// start another VM does not decide about the VM that is on this node.
	return farm.Errorf(farm.CodeBusy,
		"the node still has this instance from an earlier placement; its VM stays until the controller terminates it")
}

// recentlyEnded reports whether the instance ended here recently under the order's claim.
func (a *Agent) recentlyEnded(o api.Order) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	claim, known := a.endedClaims[o.InstanceID]
	return known && claim == o.Claim
}

// journalEntry returns the journal entry of an order.
func (a *Agent) journalEntry(o api.Order, s journal.State) journal.Entry {
	return journal.Entry{NodeID: a.opts.Identity.NodeID, Order: o, State: s}
}

// acceptRemoval accepts an order for an instance that is only to be removed. As with every end, a
// disk without free space for the order delays the acknowledgement but not the removal.
func (a *Agent) acceptRemoval(ctx context.Context, o api.Order) error {
	in := newInstance(a.journalEntry(o, journal.RemovalState(o)))
	in.endNotJournaled = true
	err := a.retryJournalWrite(in)
	a.pinAndStartWorker(ctx, in)
	return err
}

// acceptEntry makes an order durable and starts its worker.
func (a *Agent) acceptEntry(ctx context.Context, e journal.Entry) error {
	if err := a.opts.Journal.Accept(e); err != nil {
		return err
	}
	in := newInstance(e)
	in.journaled = true
	a.pinAndStartWorker(ctx, in)
	return nil
}

// pinAndStartWorker pins an instance's version and starts its worker.
func (a *Agent) pinAndStartWorker(ctx context.Context, in *instance) {
	a.pinVersion(in)
	a.log.Info("order accepted", "instance_id", in.id, "kind", string(in.order.Kind))
	a.mu.Lock()
	a.instances[in.id] = in
	a.mu.Unlock()
	a.startWorker(ctx, in)
}
