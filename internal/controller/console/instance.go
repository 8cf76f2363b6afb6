package console

import (
	"context"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// ability is the ability that nodes report which can show screens.
const ability = "console"

// Of reports whether a console of an instance could be opened now.
func (r *Relay) Of(ctx context.Context, instance string) (api.Console, error) {
	inst, err := r.viewable(ctx, instance)
	if err != nil {
		return api.Console{}, err
	}
	return api.Console{InstanceID: inst.ID, NodeID: inst.NodeID, Open: r.countOf(inst.ID)}, nil
}

// viewable returns an instance whose screen can be viewed.
func (r *Relay) viewable(ctx context.Context, id string) (*farm.Instance, error) {
	inst, err := record.LookupInstance(ctx, r.db, id)
	if err != nil {
		return nil, err
	}
	if inst.State != farm.Started {
		return nil, farm.Refused("The instance is %s; only an instance in the state %s has a console", inst.State,
			farm.Started)
	}
	node, _, ok := r.db.Tables.Nodes.Get(inst.NodeID)
	switch {
	case !ok:
		return nil, farm.Refused("The node of the instance was deleted")
	case node.State == farm.NodeOffline:
		return nil, farm.Refused("Console unavailable: node %s is offline", node.Name)
	case !slices.Contains(r.db.Tables.NodeInfo(node.ID).Abilities, ability):
		return nil, farm.Refused("The agent of node %s does not support consoles; update it",
			node.Name)
	case !r.nodes.HasContact(node.ID):
		return nil, farm.Refused("Node %s has no contact with this replica of the controller; try again",
			node.Name)
	}
	return inst, nil
}
