package agentupdate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// nodeStage is how far a node is with a rollout.
type nodeStage string

// The stages of nodes.
const (
	stagePending  nodeStage = "pending"  // it gets its turn later
	stageOffline  nodeStage = "offline"  // it waits for its node, and takes no slot
	stageUpdating nodeStage = "updating" // it has a slot
	stageUpdated  nodeStage = "updated"
	stageFailed   nodeStage = "failed" // its last try failed
	stageLost     nodeStage = "lost"   // its node went offline during its update or afterwards
	stageSkipped  nodeStage = "skipped"
)

// rolloutNode is a node as a rollout sees it.
type rolloutNode struct {
	ID       string
	Stage    nodeStage
	IsCanary bool
	Since    time.Time // when the node has entered its state
	RetryAt  time.Time // with stageFailed: when the next try begins; zero: none does
	Reason   string
}

// stageOf returns how far a node is.
func stageOf(r *farm.AgentRollout, n *farm.Node, info *farm.NodeInfo) (stage nodeStage, reason string) {
	p, ok := r.PackageFor(info)
	isOffline := n.State == farm.NodeOffline
	wasOnline := isOffline && n.StateSince.After(r.Started)
	own := n.Update != nil && n.Update.RolloutID == r.ID && n.Update.SHA256 == p.SHA256
	switch {
	case !ok && info.OS == "":
		return stageSkipped, "the node has not described itself yet"
	case !ok:
		return stageSkipped, "the rollout has no package for " + info.OS + "/" + info.Arch
	case info.AgentVersion == p.Version && wasOnline:
		return stageLost, "offline since its update"
	case info.AgentVersion == p.Version:
		return stageUpdated, ""
	case own && n.IsUpdateRunning() && isOffline:
		return stageLost, "offline since its update began"
	case own && n.IsUpdateRunning():
		return stageUpdating, ""
	case own && n.Update.LastFailure != "":
		return stageFailed, n.Update.LastFailure
	case isOffline:
		return stageOffline, "offline; it follows when it is back"
	case n.State != farm.NodeActive && n.State != farm.NodeUpdating:
		return stagePending, "waits until it is Active"
	}
	return stagePending, ""
}

// rolloutPlan is what a rollout does next.
type rolloutPlan struct {
	Next  *farm.AgentRollout // the rollout itself, in its next state
	Begin []string           // nodes whose update begins
	Wait  string             // why no further node begins; "" when one does, or the rollout is not running
}

// planRollout decides what a rollout does next. A completed one continues with nodes that are in contact again. ready
// reports whether an update of a node may begin now.
func planRollout(r *farm.AgentRollout, nodes []rolloutNode, now time.Time, ready func(id string) bool) rolloutPlan {
	plan := rolloutPlan{Next: r}
	if r.State != farm.RolloutRunning && r.State != farm.RolloutCompleted {
		return plan
	}
	count, failed := map[nodeStage]int{}, 0
	for _, n := range nodes {
		count[n.Stage]++
		if (n.Stage == stageFailed || n.Stage == stageLost) && !slices.Contains(r.Accepted, n.ID) {
			failed++
		}
	}
	online := count[stagePending] + count[stageUpdating] + count[stageUpdated] + count[stageFailed]
	switch {
	case failed > r.MaxFailures:
		plan.Next = r.WithState(farm.RolloutStopped, fmt.Sprintf("failed on %d nodes, and %d are allowed", failed,
			r.MaxFailures), now)
		return plan
	case count[stagePending]+count[stageUpdating] == 0 && online > 0 && r.State == farm.RolloutRunning:
		plan.Next = r.WithState(farm.RolloutCompleted, "", now)
		return plan
	}

	eligible := nodes
	if canaries := canariesOf(nodes); len(canaries) > 0 {
		if plan.Wait = canaryWait(canaries, r.CanaryWait, now); plan.Wait != "" {
			eligible = canaries
		}
	}
	slots := r.Batch(online) - count[stageUpdating]
	for _, n := range eligible {
		if n.isDue(now) && slots > 0 && ready(n.ID) {
			plan.Begin = append(plan.Begin, n.ID)
			slots--
		}
	}
	switch {
	case len(plan.Begin) > 0, r.State == farm.RolloutCompleted:
		plan.Wait = ""
	case plan.Wait == "" && slots <= 0:
		plan.Wait = fmt.Sprintf("%d nodes update, which is the limit", count[stageUpdating])
	case plan.Wait == "":
		plan.Wait = "no further node is Active and in contact"
	}
	return plan
}

// isDue reports whether a try of the node's update is to begin.
func (n *rolloutNode) isDue(now time.Time) bool {
	return n.Stage == stagePending || n.Stage == stageFailed && !n.RetryAt.IsZero() && !now.Before(n.RetryAt)
}

func canariesOf(nodes []rolloutNode) []rolloutNode {
	var list []rolloutNode
	for _, n := range nodes {
		if n.IsCanary && n.Stage != stageSkipped {
			list = append(list, n)
		}
	}
	return list
}

// canaryWait returns why the nodes that are not canaries have to wait; "" when they follow. At least one canary must be
// updated, and each that is in contact for the configured time.
func canaryWait(canaries []rolloutNode, wait time.Duration, now time.Time) string {
	updated := 0
	var last time.Time
	for _, n := range canaries {
		switch n.Stage {
		case stagePending, stageUpdating, stageFailed:
			return "the canary nodes are not updated yet"
		case stageUpdated:
			updated++
			if n.Since.After(last) {
				last = n.Since
			}
		}
	}
	switch end := last.Add(wait); {
	case updated == 0:
		return "no canary node is in contact"
	case now.Before(end):
		return "the canary nodes are observed until " + end.UTC().Format(time.RFC3339)
	}
	return ""
}

// sortNodes puts nodes in the order of their turns.
func sortNodes(nodes []rolloutNode) {
	slices.SortFunc(nodes, func(a, b rolloutNode) int {
		if a.IsCanary != b.IsCanary {
			if a.IsCanary {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
}
