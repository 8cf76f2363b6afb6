package controller

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
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
		Reason: settled(inst.Instance, sees), Nodes: []api.NodeExplanation{}, Counts: []api.ReasonCount{},
		Transitions: Transitions(inst.Transitions, inst.BootStarted),
	}
	if out.Fill = c.Link.DiskFill(inst.NodeID, inst.ID); out.Fill != nil && !sees(inst.NodeID) {
		out.Fill.Problem = "" // it may name the node
	}
	if !inst.AwaitsPlacement() {
		return out, nil
	}
	out.Reason = cmp.Or(inst.Message, "not evaluated yet")
	reasons, position := c.placer.Explain(inst.ID)
	reasons = slices.DeleteFunc(reasons, func(n sched.NodeReason) bool { return !sees(n.NodeID) })
	out.Counts, out.Queue = reasonCounts(reasons), queuePlace(position)
	for _, n := range reasons {
		e := api.NodeExplanation{NodeID: n.NodeID, NodeName: n.NodeName, CanStart: n.Filter == ""}
		if e.CanStart {
			e.Score = n.Text
		} else {
			e.Reason, e.Cause, e.CauseText = n.Text, string(n.Filter), n.Label
		}
		out.Nodes = append(out.Nodes, e)
	}
	return out, nil
}

// remedies are what an operator can do about the nodes that a filter excludes.
var remedies = map[sched.Filter]string{
	sched.FilterPinned:     "start it without a pinned node",
	sched.FilterGroup:      "add the nodes to the group, or set a fallback group",
	sched.FilterGuestOS:    "start it on other nodes",
	sched.FilterArch:       "add nodes of the architecture, or use another template",
	sched.FilterSavedState: "use a version without a saved state, or add nodes of the same kind",
	sched.FilterAbility:    "leave out the ability, or add nodes whose hypervisor has it",
	sched.FilterUSB:        "attach the device to a node, or start it without",
	sched.FilterNetwork:    "configure a bridge on the nodes, or use another network mode",
	sched.FilterVLAN:       "add the VLAN to the nodes",
	sched.FilterSize:       "use fewer CPUs or less memory, or add larger nodes",
	sched.FilterState:      "see the pages of the nodes for the cause",
	sched.FilterReserved:   "wait: larger requests have waited longer",
	sched.FilterFull:       "raise the capacity, or end instances that have failed",
	sched.FilterUSBBusy:    "wait for the device, or attach another one",
}

func reasonCounts(reasons []sched.NodeReason) []api.ReasonCount {
	counts := sched.CountReasons(reasons)
	out := make([]api.ReasonCount, len(counts))
	for i, n := range counts {
		out[i] = api.ReasonCount{
			Cause: string(n.Filter), Text: n.Label, Nodes: n.Nodes, Temporary: n.Filter.IsTemporary(),
			Remedy: remedies[n.Filter],
		}
	}
	return out
}

func queuePlace(at *sched.QueuePosition) *api.QueuePlace {
	if at == nil {
		return nil
	}
	out := &api.QueuePlace{Position: at.Position, Waiting: at.Waiting}
	if at.Rate > 0 {
		seconds := int(math.Ceil(float64(at.Position) / at.Rate))
		out.ExpectedSeconds = &seconds
	}
	return out
}

// settled returns why an instance does not wait for a node. It names only a node that the caller sees.
func settled(inst *farm.Instance, sees func(node string) bool) string {
	node := "a node"
	if sees(inst.NodeID) {
		node = "node " + cmp.Or(inst.NodeName, inst.NodeID)
	}
	switch {
	case inst.State == farm.Errored:
		return "it has failed and is not tried again: " + cmp.Or(inst.Message, "its node does not say why")
	case inst.State == farm.Terminating || inst.State == farm.Terminated:
		return "it was terminated"
	case !inst.NodeLostAt.IsZero():
		return "it is placed on " + node + ", which is offline: it continues when the node returns"
	case inst.State == farm.Scheduling || inst.State == farm.Pulling:
		return "it is placed on " + node + ", which prepares it"
	default:
		return "it is placed on " + node + ", where it is " + string(inst.State)
	}
}

// Transitions converts changes of state to their form in the API. booted is when the VM began to boot; zero: never.
func Transitions(states []farm.Transition, booted time.Time) []api.Transition {
	list := farm.WithPhases(states, booted.UnixMilli())
	out := make([]api.Transition, len(list))
	for i, t := range list {
		out[i] = api.Transition{State: string(t.State), Phase: string(t.Phase), Time: t.Time(), Message: t.Reason}
	}
	return out
}
