package nodelink

import (
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// pendingOrder is an order that a node has not carried out yet.
type pendingOrder struct {
	kind         api.OrderKind
	claim        string
	task         string    // of a save or a restart
	sent         time.Time // zero: not yet
	acknowledged bool      // it is in the node's journal and is not sent again
}

// taskOrders are the orders of the tasks.
var taskOrders = map[farm.NodeTaskKind]api.OrderKind{
	farm.TaskSave: api.OrderSave, farm.TaskRestart: api.OrderRestart,
}

// orderFor returns the kind of order that a node needs for an instance as it is; "" for none.
func orderFor(inst *farm.Instance) api.OrderKind {
	switch {
	case inst.State == farm.Terminating, inst.StartAborted:
		return api.OrderTerminate
	case inst.State == farm.Scheduling && inst.StatusNumber == 0:
		return api.OrderStart
	case inst.Task != nil:
		return taskOrders[inst.Task.Kind]
	default:
		return ""
	}
}

// clearOrder processes a record that needs no order.
func (s *session) clearOrder(inst *farm.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropOwnedLocked(inst)
	delete(s.orders, inst.ID)
}

// dropOrder withdraws the order for an instance whose record is removed.
func (s *session) dropOrder(instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.orders, instance)
}

// equals reports whether two pending orders are the same order.
func (d pendingOrder) equals(o pendingOrder) bool {
	return d.kind == o.kind && d.claim == o.claim && d.task == o.task
}

// acknowledge marks the orders that the node has in its journal. A terminate order is sent again
// until the node reports that it is done, but not before the resend time has passed.
func (s *session) acknowledge(acks []api.Ack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range acks {
		d, ok := s.orders[a.InstanceID]
		if ok && d.kind != api.OrderTerminate && d.equals(pendingOrder{kind: a.Kind, claim: a.Claim, task: a.Task}) {
			d.acknowledged = true
			s.orders[a.InstanceID] = d
		}
	}
}

// acknowledgeStart records that a node has an instance: it received the start order, perhaps from an earlier
// controller process.
func (s *session) acknowledgeStart(h api.InventoryItem) {
	s.acknowledge([]api.Ack{{InstanceID: h.InstanceID, Claim: h.Claim, Kind: api.OrderStart}})
}

// maxOrders bounds one response; the rest comes with the next poll.
const maxOrders = 200

// takeOrders marks the orders that are to be sent now and returns them with the time at which the next
// one is due again.
func (s *session) takeOrders(now time.Time, resend time.Duration) (ids []string, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.orders {
		if d.acknowledged {
			continue
		}
		if again := d.sent.Add(resend); !d.sent.IsZero() && now.Before(again) {
			next = earlier(next, again)
			continue
		}
		if len(ids) == maxOrders {
			return ids, now
		}
		d.sent = now
		s.orders[id] = d
		ids = append(ids, id)
	}
	return ids, next
}
