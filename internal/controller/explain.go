package controller

import (
	"cmp"
	"context"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Explain reports, for a pending instance, why each node that the caller may see can or cannot
// start it. For another instance it reports why it does not wait; farm.CodeNotFound when it does
// not exist.
func (c *Controller) Explain(ctx context.Context, id string, sees func(node string) bool) (api.Explanation, error) {
	inst, err := c.Instances.Get(ctx, id)
	if err != nil {
		return api.Explanation{}, err
	}
	out := api.Explanation{
		Reason: settled(inst.Instance), Nodes: []api.NodeExplanation{},
		Transitions: Transitions(inst.Transitions),
	}
	if !inst.AwaitsPlacement() {
		return out, nil
	}
	out.Reason = cmp.Or(inst.Message, "not evaluated yet")
	for _, n := range c.placer.Explain(inst.ID) {
		if !sees(n.NodeID) {
			continue
		}
		e := api.NodeExplanation{NodeID: n.NodeID, NodeName: n.NodeName, CanStart: n.Filter == ""}
		if e.CanStart {
			e.Score = n.Text
		} else {
			e.Reason = n.Text
		}
		out.Nodes = append(out.Nodes, e)
	}
	return out, nil
}

// settled returns why an instance does not wait for a node.
func settled(inst *farm.Instance) string {
	node := cmp.Or(inst.NodeName, inst.NodeID)
	switch {
	case inst.State == farm.Errored:
		return "it has failed and is not tried again: " + cmp.Or(inst.Message, "its node does not say why")
	case inst.State == farm.Terminating || inst.State == farm.Terminated:
		return "it was terminated"
	case inst.State == farm.Scheduling || inst.State == farm.Pulling:
		return "it is placed on node " + node + ", which prepares it"
	default:
		return "it is placed on node " + node + ", where it is " + string(inst.State)
	}
}

// Transitions converts changes of state to their form in the API.
func Transitions(list []farm.Transition) []api.Transition {
	out := make([]api.Transition, len(list))
	for i, t := range list {
		out[i] = api.Transition{State: string(t.State), Time: t.Time(), Message: t.Reason}
	}
	return out
}
