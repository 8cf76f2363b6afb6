package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// remaining returns how many instances still use capacity on a node.
func (c *Controller) remaining(node string) (n int) {
	for _, inst := range c.tables.Instances.Where(record.ByNode, node) {
		if inst.UsesCapacity() {
			n++
		}
	}
	return n
}

// drainedAt returns when an instance is terminated because its node is drained.
func drainedAt(k *reconciler, i *farm.Instance) time.Time {
	if !i.UsesCapacity() || i.State == farm.Terminating {
		return time.Time{}
	}
	node, _, ok := k.c.tables.Nodes.Get(i.NodeID)
	if !ok || !node.Drain || node.Draining == nil {
		return time.Time{}
	}
	return node.Draining.Until
}

func (k *reconciler) drained(i *farm.Instance, now time.Time) *farm.Instance {
	n, err := k.c.terminating(i)
	if err != nil || n == i {
		return i
	}
	n.Updated = now
	name := i.NodeName
	if node, _, ok := k.c.tables.Nodes.Get(i.NodeID); ok {
		name = node.Name
	}
	n.Message = fmt.Sprintf("Its node %s is drained, and the time for that is over", name)
	return n
}

// emptied records, one time per drain, that a drained node has no instance left.
func (k *reconciler) emptied(ctx context.Context, node *farm.Node) error {
	if !empties(node) || k.c.remaining(node.ID) > 0 {
		return nil
	}
	now := k.c.now()
	w := k.c.Events.With(k.w, func() farm.Event {
		return farm.NewNodeEvent(farm.EventNodeDrained, node, map[string]any{"reason": node.Draining.Reason})
	})
	_, err := store.Update(ctx, w, k.c.tables.Nodes, node.ID, func(n *farm.Node) (*farm.Node, error) {
		if n == nil || !empties(n) {
			return n, nil
		}
		n = n.Clone()
		d := *n.Draining
		d.Emptied = now
		n.Draining = &d
		return n, nil
	})
	if err == nil {
		k.c.log.InfoContext(ctx, "drained node has no more instances", "node", node.ID, "name", node.Name, "reason",
			node.Draining.Reason)
	}
	return err
}

// empties reports whether a node is drained and was not empty yet.
func empties(n *farm.Node) bool {
	return n.Drain && n.Draining != nil && n.Draining.Emptied.IsZero()
}
