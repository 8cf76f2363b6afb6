package agentupdate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Limits of a rollout.
const (
	MaxCanaryWait = 7 * 24 * time.Hour
	MaxFailures   = 10_000
	MaxBatch      = 10_000 // nodes
	MaxReason     = 1024   // bytes
)

// RolloutRequest describes a rollout to start.
type RolloutRequest struct {
	CanaryGroups []string // names or IDs
	CanaryWait   time.Duration
	BatchPercent int // 0: BatchNodes
	BatchNodes   int
	MaxFailures  int
	By           string // name of the caller
}

// StartRollout starts a rollout of the present packages, in place of one that has ended.
func (s *Updates) StartRollout(ctx context.Context, req RolloutRequest) (api.AgentRollout, error) {
	s.packages.Refresh()
	var none api.AgentRollout
	packages := s.packages.Packages()
	if len(packages) == 0 {
		return none, farm.Refused("No node agent can be updated. %s", s.missing(&farm.NodeInfo{}))
	}
	groups, err := s.opts.ResolveGroups(ctx, req.CanaryGroups)
	if err != nil {
		return none, err
	}
	now := s.db.Now()
	next := &farm.AgentRollout{
		ID: uuid.NewString(), State: farm.RolloutRunning, Started: now, Changed: now, StartedBy: req.By,
		CanaryGroups: groups, CanaryWait: req.CanaryWait, BatchPercent: req.BatchPercent, BatchNodes: req.BatchNodes,
		MaxFailures: req.MaxFailures,
	}
	for _, p := range packages {
		next.Packages = append(next.Packages,
			farm.RolloutPackage{OS: p.OS, Arch: p.Arch, Version: p.Version, SHA256: p.SHA256})
	}
	_, err = record.Update(ctx, s.db.Store, s.db.Tables.AgentRollouts, record.LastRollout,
		func(last *farm.AgentRollout) (*farm.AgentRollout, error) {
			if last.IsOpen() {
				return nil, farm.Refused("A rollout is %s; resume it, or abort it first", last.State)
			}
			return next, nil
		})
	if err != nil {
		return none, err
	}
	return s.Rollout(ctx)
}

// RolloutAction is what an operator does with a rollout.
type RolloutAction string

// The actions.
const (
	PauseRollout  RolloutAction = "pause"
	ResumeRollout RolloutAction = "resume"
	AbortRollout  RolloutAction = "abort"
)

// rolloutChanges are the states that the actions lead from and to.
var rolloutChanges = map[RolloutAction]struct {
	from []farm.RolloutState
	to   farm.RolloutState
}{
	PauseRollout:  {[]farm.RolloutState{farm.RolloutRunning}, farm.RolloutPaused},
	ResumeRollout: {[]farm.RolloutState{farm.RolloutPaused, farm.RolloutStopped}, farm.RolloutRunning},
	AbortRollout: {
		[]farm.RolloutState{farm.RolloutRunning, farm.RolloutPaused, farm.RolloutStopped}, farm.RolloutAborted,
	},
}

// ChangeRollout pauses, resumes or aborts the rollout. An aborted one also ends the updates that continue; nodes that
// are updated stay so.
func (s *Updates) ChangeRollout(ctx context.Context, action RolloutAction, reason string) (api.AgentRollout, error) {
	var none api.AgentRollout
	change := rolloutChanges[action]
	next, err := record.Update(ctx, s.db.Store, s.db.Tables.AgentRollouts, record.LastRollout,
		func(last *farm.AgentRollout) (*farm.AgentRollout, error) {
			switch {
			case last == nil:
				return nil, farm.Refused("Rollout not found; start one first")
			case last.State == change.to:
				return last, nil
			case !slices.Contains(change.from, last.State):
				return nil, farm.Refused("The rollout is %s and cannot be changed", last.State)
			}
			next := last.WithState(change.to, reason, s.db.Now())
			if action == ResumeRollout {
				next.Accepted = s.failedNodes(last)
			}
			return next, nil
		})
	if err != nil {
		return none, err
	}
	if action != PauseRollout {
		if err := s.dropUpdates(ctx, s.db.Store, next, action == AbortRollout); err != nil {
			return none, err
		}
	}
	return s.Rollout(ctx)
}

// failedNodes returns the nodes whose failures an operator has seen when a rollout is resumed.
func (s *Updates) failedNodes(r *farm.AgentRollout) (ids []string) {
	for _, n := range s.rolloutNodes(r) {
		if n.Stage == stageFailed || n.Stage == stageLost {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// dropUpdates ends the updates of a rollout that have failed, so that they begin again, or all of them.
func (s *Updates) dropUpdates(ctx context.Context, w store.Writer, r *farm.AgentRollout, all bool) error {
	var ids []string
	for id, n := range s.db.Tables.Nodes.All() {
		if n.Update != nil && n.Update.RolloutID == r.ID && (all || !n.IsUpdateRunning()) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	bulk := record.Bulk[farm.Node]{
		Writer: w, Limits: s.db.Store.Limits(), Table: s.db.Tables.Nodes,
		Change: func(n *farm.Node) (*farm.Node, error) {
			if n.Update == nil || n.Update.RolloutID != r.ID || !all && n.IsUpdateRunning() {
				return n, nil
			}
			n = n.Clone()
			n.EndUpdateTry("", s.db.Now())
			return n, nil
		},
	}
	return bulk.Update(ctx, ids)
}

// lastRollout returns the last rollout; nil when there was none.
func (s *Updates) lastRollout() *farm.AgentRollout {
	r, _, _ := s.db.Tables.AgentRollouts.Get(record.LastRollout)
	return r
}

// rolloutNodes returns the nodes as a rollout sees them, in the order of their turns.
func (s *Updates) rolloutNodes(r *farm.AgentRollout) []rolloutNode {
	list := make([]rolloutNode, 0, s.db.Tables.Nodes.Len())
	for id, n := range s.db.Tables.Nodes.All() {
		stage, reason := stageOf(r, n, s.db.Tables.NodeInfo(id))
		list = append(list, rolloutNode{
			ID: id, Stage: stage, Since: n.StateSince, Reason: reason, RetryAt: n.Update.NextTryAt(),
			IsCanary: slices.ContainsFunc(n.Groups, func(g string) bool { return slices.Contains(r.CanaryGroups, g) }),
		})
	}
	sortNodes(list)
	return list
}

// continueRollout carries out the next step of the rollout.
func (s *Updates) continueRollout(ctx context.Context, w *record.Term, now time.Time) error {
	r, _, ok := s.db.Tables.AgentRollouts.Get(record.LastRollout)
	if !ok {
		return nil
	}
	if r.State == farm.RolloutAborted { // an update may have begun while an operator aborted it
		return s.dropUpdates(ctx, w, r, true)
	}
	plan := rolloutPlan{Next: r}
	switch replaced := s.replacedPackage(r); {
	case replaced != "" && r.State == farm.RolloutRunning:
		plan.Next = r.WithState(farm.RolloutStopped, replaced, now)
	case replaced == "":
		plan = planRollout(r, s.rolloutNodes(r), now, s.isInContact)
	}
	if plan.Next != r {
		written, err := record.Update(ctx, w, s.db.Tables.AgentRollouts, record.LastRollout,
			func(last *farm.AgentRollout) (*farm.AgentRollout, error) {
				if last != r {
					return last, nil // an operator has changed it; the next run sees that
				}
				return plan.Next, nil
			})
		if err == nil && written == plan.Next {
			s.db.Log.InfoContext(ctx, "rollout of agent packages changed", "state", plan.Next.State, "reason",
				plan.Next.Reason)
		}
		return err
	}
	bulk := record.Bulk[farm.Node]{
		Writer: w, Limits: s.db.Store.Limits(), Table: s.db.Tables.Nodes,
		Change: func(n *farm.Node) (*farm.Node, error) {
			if s.lastRollout() != r {
				return n, nil // an operator has changed it; the next run sees that
			}
			return s.beginInRollout(r, n, now), nil
		},
	}
	return bulk.Update(ctx, plan.Begin)
}

// beginInRollout returns a node whose update begins as a part of a rollout.
func (s *Updates) beginInRollout(r *farm.AgentRollout, n *farm.Node, now time.Time) *farm.Node {
	info := s.db.Tables.NodeInfo(n.ID)
	p, ok := r.PackageFor(info)
	stage, _ := stageOf(r, n, info)
	if !ok || n.IsUpdateRunning() || stage != stagePending && stage != stageFailed {
		return n
	}
	next := n.Clone()
	if stage == stagePending {
		next.Update = &farm.AgentUpdate{
			Version: p.Version, SHA256: p.SHA256, Force: true, RequestedAt: now, RolloutID: r.ID,
		}
	}
	if !next.BeginUpdateTry(uuid.NewString(), now) {
		return n
	}
	return next
}

// replacedPackage returns why the packages of a rollout are no longer those of the controller; "" when they are.
func (s *Updates) replacedPackage(r *farm.AgentRollout) string {
	for _, p := range r.Packages {
		if now, ok := s.packages.PackageFor(p.OS, p.Arch); !ok || now.SHA256 != p.SHA256 {
			return fmt.Sprintf("the package for %s/%s was replaced or removed; "+
				"abort this rollout and start another one", p.OS, p.Arch)
		}
	}
	return ""
}

// decidesAbout reports whether a rollout decides about the updates to a package, so that none begins automatically.
func decidesAbout(r *farm.AgentRollout, p api.AgentPackage) bool {
	return r != nil &&
		slices.ContainsFunc(r.Packages, func(one farm.RolloutPackage) bool { return one.SHA256 == p.SHA256 })
}

// Rollout returns the last rollout with its nodes; farm.CodeNotFound when there was none.
func (s *Updates) Rollout(ctx context.Context) (api.AgentRollout, error) {
	r, _, err := record.Lookup(ctx, s.db.Tables.AgentRollouts, record.LastRollout)
	if err != nil {
		return api.AgentRollout{}, err
	}
	nodes := s.rolloutNodes(r)
	out := api.AgentRollout{
		ID: r.ID, State: string(r.State), Reason: r.Reason, Started: r.Started, StartedBy: r.StartedBy,
		Changed: r.Changed, CanaryGroups: r.CanaryGroups, CanaryWait: int(r.CanaryWait / time.Second),
		BatchPercent: r.BatchPercent, BatchNodes: r.BatchNodes, MaxFailures: r.MaxFailures,
		Counts: map[string]int{}, Nodes: []api.RolloutNode{},
	}
	if plan := planRollout(r, nodes, s.db.Now(), s.isInContact); plan.Wait != "" {
		out.Reason = plan.Wait
	}
	for _, p := range r.Packages {
		out.Packages = append(out.Packages, api.RolloutPackage{OS: p.OS, Arch: p.Arch, Version: p.Version})
	}
	for _, n := range nodes {
		node, _, ok := s.db.Tables.Nodes.Get(n.ID)
		if !ok {
			continue
		}
		out.Counts[string(n.Stage)]++
		out.Nodes = append(out.Nodes, api.RolloutNode{
			NodeID: n.ID, NodeName: node.Name, Stage: string(n.Stage), Canary: n.IsCanary, Reason: n.Reason,
			AgentVersion: s.db.Tables.NodeInfo(n.ID).AgentVersion,
		})
	}
	return out, nil
}
