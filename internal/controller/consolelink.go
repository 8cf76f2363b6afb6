package controller

import (
	"context"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/console"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// ConsoleOf reports whether a console of an instance could be opened now.
func (c *Controller) ConsoleOf(ctx context.Context, id string) (api.Console, error) {
	inst, err := c.showable(ctx, id)
	if err != nil {
		return api.Console{}, err
	}
	return api.Console{InstanceID: inst.ID, NodeID: inst.NodeID, Open: c.Consoles.CountOf(inst.ID)}, nil
}

// showable returns an instance whose screen can be shown.
func (c *Controller) showable(ctx context.Context, id string) (*farm.Instance, error) {
	inst, _, err := record.Lookup(ctx, c.tables.Instances, id)
	if err != nil {
		return nil, err
	}
	if inst.State != farm.Started {
		return nil, farm.Refused("The instance is %s; only an instance in the state %s has a console", inst.State,
			farm.Started)
	}
	node, _, ok := c.tables.Nodes.Get(inst.NodeID)
	if !ok {
		return nil, farm.Refused("The node of the instance was deleted")
	}
	_, seen := c.Link.Sessions.Usage(node.ID)
	switch {
	case node.State == farm.NodeOffline:
		return nil, farm.Refused("Console unavailable: node %s is offline", node.Name)
	case !slices.Contains(c.tables.NodeInfo(node.ID).Abilities, abilityConsole):
		return nil, farm.Refused("The agent of node %s does not support consoles; update it",
			node.Name)
	case c.now().Sub(seen) > nodelink.ContactGap:
		return nil, farm.Refused("Node %s has no contact with this replica of the controller; try again",
			node.Name)
	}
	return inst, nil
}

// abilityConsole is the ability that nodes report which can show screens.
const abilityConsole = "console"

// OpenConsole requests the screen of an instance from its node. The session ends with ctx.
func (c *Controller) OpenConsole(ctx context.Context, id string) (*console.Session, error) {
	inst, err := c.showable(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.Consoles.Open(ctx, inst)
}
