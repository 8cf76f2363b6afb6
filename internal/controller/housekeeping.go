package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// housekeep does what nobody asks for: it removes what is finished, notices nodes
// that fell silent, and ends the instances of nodes that stay away. Only the holder of
// the lease does.
func (c *Controller) housekeep(ctx context.Context, r *reign) {
	tick := time.NewTicker(c.opts.HousekeepingTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.tidy(ctx, r)
		}
	}
}

func (c *Controller) tidy(ctx context.Context, r *reign) {
	now := c.now()
	for _, inst := range c.tables.Instances.All() {
		if err := c.tidyInstance(ctx, r, inst, now); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "could not tidy an instance", "instance", inst.ID, "error", err)
		}
	}
	for id, node := range c.tables.Removed.All() {
		if now.Sub(node.At) > keepRemoved {
			_ = r.Commit(ctx, store.Delete(c.tables.Removed, id, store.Any)) // tried again at the next tick
		}
	}
	for _, node := range c.tables.Nodes.All() {
		if err := c.tidyNode(ctx, r, node, now); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "could not tidy a node", "node", node.ID, "error", err)
		}
	}
	if err := c.tidySaves(ctx, r, now); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "could not tidy the save requests", "error", err)
	}
}

// tidyInstance moves an instance on that waits for nobody but the clock.
func (c *Controller) tidyInstance(ctx context.Context, w store.Writer, inst *farm.Instance, now time.Time) error {
	switch {
	case inst.State == farm.Terminated && (inst.Started.IsZero() || now.Sub(inst.Finished) >= c.opts.KeepTerminated),
		inst.State == farm.Terminating && inst.NodeID == "":
		return c.remove(ctx, w, inst.ID)
	case inst.State == farm.Terminating && !c.nodeExists(inst.NodeID),
		!inst.Lost.IsZero() && inst.State != farm.Failed && inst.State != farm.Terminating &&
			now.Sub(inst.Lost) >= c.opts.InstanceTimeout:
		return c.abandon(ctx, w, inst.ID, "Its node has been offline for too long")
	case inst.Live() && inst.State != farm.Failed && !c.nodeExists(inst.NodeID):
		return c.abandon(ctx, w, inst.ID, "Its node was removed from the cloud")
	}
	return nil
}

func (c *Controller) nodeExists(id string) bool {
	_, _, ok := c.tables.Nodes.Get(id)
	return ok
}

// remove deletes the record of an instance that is at its end.
func (c *Controller) remove(ctx context.Context, w store.Writer, id string) error {
	_, err := store.Update(ctx, w, c.tables.Instances, id, func(i *farm.Instance) (*farm.Instance, error) {
		if i == nil || i.State == farm.Terminated || (i.State == farm.Terminating && i.NodeID == "") {
			return nil, nil //nolint:nilnil // a nil record deletes it
		}
		return i, nil
	})
	return err
}

// tidyNode declares a silent node offline, and gives back slots that no instance
// takes any more. Nobody is silent before one full time-out has passed since this
// replica won the lease.
func (c *Controller) tidyNode(ctx context.Context, r *reign, node *farm.Node, now time.Time) error {
	if err := c.freeStaleSlots(ctx, r, node); err != nil {
		return err
	}
	_, seen := c.link.usage(node.ID)
	if seen.Before(r.since) {
		seen = r.since
	}
	silent := now.Sub(seen)
	if node.State == farm.NodeOffline {
		return c.nodeLost(ctx, r, node, now)
	}
	if silent < c.opts.NodeTimeout {
		return nil
	}
	_, err := store.Update(ctx, r, c.tables.Nodes, node.ID, func(n *farm.Node) (*farm.Node, error) {
		if n == nil {
			return nil, nil //nolint:nilnil // it is gone already
		}
		to, drain := farm.NextNode(n.State, n.Drain, farm.NodeSilence)
		if to == n.State {
			return n, nil
		}
		n = n.Clone()
		n.State, n.Drain, n.StateSince = to, drain, now
		n.StateReason = fmt.Sprintf("no contact for %s", silent.Round(time.Second))
		return n, nil
	})
	c.log.WarnContext(ctx, "node is offline", "node", node.ID, "name", node.Name, "silent", silent.String())
	return err
}

// nodeLost tells the instances of an offline node that it is away; they keep their state.
func (c *Controller) nodeLost(ctx context.Context, w store.Writer, node *farm.Node, now time.Time) error {
	for _, inst := range c.instancesOn(node.ID) {
		if !inst.Lost.IsZero() || !inst.Live() {
			continue
		}
		err := c.modify(ctx, w, inst.ID, func(i *farm.Instance) (*farm.Instance, error) {
			to, ok := farm.NextInstance(i.State, farm.NodeLost)
			if !ok || !i.Lost.IsZero() {
				return i, nil
			}
			n := i.Clone()
			n.State, n.Lost, n.Updated = to, now, now
			if to != farm.Failed {
				n.Message = fmt.Sprintf("Node %s is offline; the instance goes on when it returns", node.Name)
			}
			return n, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// freeStaleSlots removes allocations whose instance is gone or takes no slot. The
// usual ways free a slot at once; this one makes sure that none is ever lost.
func (c *Controller) freeStaleSlots(ctx context.Context, r *reign, node *farm.Node) error {
	var stale []string
	for id := range node.Allocs {
		if inst, _, ok := c.tables.Instances.Get(id); ok && inst.NodeID == node.ID && inst.HoldsSlot() {
			continue
		}
		// The tables are not read at one moment: ask the store itself.
		inst, _, err := c.tables.Instances.GetLinearizable(ctx, id)
		if err != nil {
			return err
		}
		if inst == nil || inst.NodeID != node.ID || !inst.HoldsSlot() {
			stale = append(stale, id)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	_, err := store.Update(ctx, r, c.tables.Nodes, node.ID, func(n *farm.Node) (*farm.Node, error) {
		if n == nil {
			return nil, nil //nolint:nilnil // it is gone already
		}
		n = n.Clone()
		for _, id := range stale {
			delete(n.Allocs, id)
		}
		return n, nil
	})
	return err
}
