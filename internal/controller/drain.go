package controller

import (
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

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
	n := i.AfterTerminate(now)
	if n == i {
		return i
	}
	name := i.NodeName
	if node, _, ok := k.c.tables.Nodes.Get(i.NodeID); ok {
		name = node.Name
	}
	n.Message = fmt.Sprintf("Its node %s is drained, and the time for that is over", name)
	return n
}
