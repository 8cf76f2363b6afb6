package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/agentupdate"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// settle lets the leader work while some nodes stay in contact, and report the progress of their updates.
func settle(agents ...*agent) {
	for range 6 {
		for _, a := range agents {
			a.contact()
			if u := a.hears(nil); u != nil {
				a.hears(&api.UpdateStatus{ID: u.ID, Stage: api.UpdateLoading, Progress: 0.5})
			}
		}
		time.Sleep(reconcile.SweepInterval / 4)
	}
}

// rolloutState returns the state of the rollout with the stages of its nodes by name.
func (c *cloud) rolloutState() (r api.AgentRollout, stages map[string]string) {
	c.t.Helper()
	r, err := c.Updates.Rollout(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	stages = map[string]string{}
	for _, n := range r.Nodes {
		stages[n.NodeName] = n.Stage
	}
	return r, stages
}

func (c *cloud) startRollout(req agentupdate.RolloutRequest) {
	c.t.Helper()
	if _, err := c.Updates.StartRollout(c.t.Context(), req); err != nil {
		c.t.Fatal(err)
	}
}

// TestRolloutInBatches: nodes update one after the other, a node that is Offline takes no slot and follows when it is
// back, and no node updates automatically.
func TestRolloutInBatches(t *testing.T) {
	b := newCupboard("")
	inUpdates(t, b, true, func(t *testing.T, c *cloud) {
		one, two := c.join("one", 2).runs("1.0.0-a"), c.join("two", 2).runs("1.0.0-a")
		away := c.join("away", 2).runs("1.0.0-a")
		for c.node(away).Node.State != farm.NodeOffline {
			settle(one, two)
		}
		b.mu.Lock()
		b.version = "2.0.0-b"
		b.mu.Unlock()
		c.startRollout(agentupdate.RolloutRequest{BatchNodes: 1})
		settle(one, two)
		updating := func() (list []*agent) {
			for _, a := range []*agent{one, two, away} {
				if c.node(a).Node.State == farm.NodeUpdating {
					list = append(list, a)
				}
			}
			return list
		}
		for range 2 {
			now := updating()
			if len(now) != 1 || now[0] == away {
				t.Fatalf("%d nodes update", len(now))
			}
			now[0].reborn("2.0.0-b")
			settle(one, two)
		}
		r, stages := c.rolloutState()
		if r.State != string(farm.RolloutCompleted) || stages["away"] != "offline" || r.Counts["updated"] != 2 {
			t.Fatalf("%s (%s): %v", r.State, r.Reason, stages)
		}
		away.contact()
		settle(one, two, away)
		if now := updating(); len(now) != 1 || now[0] != away {
			t.Errorf("the node that is back: %+v", c.node(away).Node)
		}
	})
}

// TestRolloutStops after a failure, and continues when an operator resumes it.
func TestRolloutStops(t *testing.T) {
	b := newCupboard("2.0.0-b")
	inUpdates(t, b, false, func(t *testing.T, c *cloud) {
		one, two := c.join("one", 2).runs("1.0.0-a"), c.join("two", 2).runs("1.0.0-a")
		agents := []*agent{one, two}
		slices.SortFunc(agents, func(x, y *agent) int { return strings.Compare(x.id, y.id) })
		first, second := agents[0], agents[1]
		c.startRollout(agentupdate.RolloutRequest{BatchNodes: 1})
		settle(one, two)
		u := first.hears(nil)
		if u == nil {
			t.Fatalf("the first node: %+v", c.node(first).Node)
		}
		first.hears(&api.UpdateStatus{ID: u.ID, Stage: api.UpdateFailed, Message: "no space"})
		settle(one, two)
		r, _ := c.rolloutState()
		if r.State != string(farm.RolloutStopped) || r.Counts["failed"] != 1 || c.node(second).Node.Update != nil {
			t.Fatalf("%s (%s): %v", r.State, r.Reason, r.Counts)
		}
		if _, err := c.Updates.StartRollout(t.Context(), agentupdate.RolloutRequest{BatchNodes: 1}); farm.CodeOf(err) !=
			farm.CodeRefused {
			t.Errorf("another rollout next to it: %v", err)
		}
		if _, err := c.Updates.ChangeRollout(t.Context(), agentupdate.ResumeRollout, ""); err != nil {
			t.Fatal(err)
		}
		settle(one, two)
		if first.hears(nil) == nil {
			t.Fatalf("after it was resumed: %+v", c.node(first).Node)
		}
		first.reborn("2.0.0-b")
		settle(one, two)
		second.reborn("2.0.0-b")
		settle(one, two)
		if r, _ := c.rolloutState(); r.State != string(farm.RolloutCompleted) {
			t.Errorf("%s (%s): %v", r.State, r.Reason, r.Counts)
		}
	})
}

// TestRolloutIsAborted: the updates that continue end, and a pause begins none.
func TestRolloutIsAborted(t *testing.T) {
	b := newCupboard("2.0.0-b")
	inUpdates(t, b, false, func(t *testing.T, c *cloud) {
		one, two := c.join("one", 2).runs("1.0.0-a"), c.join("two", 2).runs("1.0.0-a")
		change := func(action agentupdate.RolloutAction, want farm.RolloutState) {
			t.Helper()
			r, err := c.Updates.ChangeRollout(t.Context(), action, "why")
			if err != nil || r.State != string(want) {
				t.Fatalf("%s: %s, %v", action, r.State, err)
			}
			settle(one, two)
		}
		if _, err := c.Updates.ChangeRollout(t.Context(), agentupdate.PauseRollout, ""); farm.CodeOf(err) !=
			farm.CodeRefused {
			t.Errorf("without a rollout: %v", err)
		}
		c.startRollout(agentupdate.RolloutRequest{BatchNodes: 1})
		settle(one, two)
		change(agentupdate.PauseRollout, farm.RolloutPaused)
		if r, _ := c.rolloutState(); r.Counts["updating"] != 1 || r.Counts["pending"] != 1 || r.Reason != "why" {
			t.Errorf("paused: %v (%s)", r.Counts, r.Reason)
		}
		change(agentupdate.AbortRollout, farm.RolloutAborted)
		for _, a := range []*agent{one, two} {
			if n := c.node(a).Node; n.State != farm.NodeActive || n.Update != nil {
				t.Errorf("aborted: %+v", n)
			}
		}
		aborted, _ := c.rolloutState()
		_, err := record.Update(t.Context(), c.db.Store, c.db.Tables.Nodes, one.id,
			func(n *farm.Node) (*farm.Node, error) { // the leader had decided before the operator
				n = n.Clone()
				n.Update = &farm.AgentUpdate{Version: "2.0.0-b", Force: true, RolloutID: aborted.ID}
				return n, nil
			})
		settle(one, two)
		if n := c.node(one).Node; err != nil || n.Update != nil {
			t.Errorf("an update that began during the abort: %+v, %v", n.Update, err)
		}
		if _, err := c.Updates.ChangeRollout(t.Context(), agentupdate.ResumeRollout, ""); farm.CodeOf(err) !=
			farm.CodeRefused {
			t.Errorf("resumed after the end: %v", err)
		}
		c.startRollout(agentupdate.RolloutRequest{BatchNodes: 2})
		settle(one, two)
		if r, _ := c.rolloutState(); r.Counts["updating"] != 2 {
			t.Errorf("the next one: %v", r.Counts)
		}
		b.put("3.0.0-c")
		settle(one, two)
		r, _ := c.rolloutState()
		if r.State != string(farm.RolloutStopped) || !strings.Contains(r.Reason, "was replaced") {
			t.Errorf("after the package was replaced: %s (%s)", r.State, r.Reason)
		}
	})
}

// TestDeadNodeIsNotPicked: a node that has died is not Offline yet, and does not become Updating.
func TestDeadNodeIsNotPicked(t *testing.T) {
	b := newCupboard("2.0.0-b")
	inUpdates(t, b, false, func(t *testing.T, c *cloud) {
		a := c.join("dead", 2).runs("1.0.0-a")
		time.Sleep(time.Minute)
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * reconcile.SweepInterval)
		if n := c.node(a).Node; n.State == farm.NodeUpdating || n.Update == nil {
			t.Errorf("%+v", n)
		}
	})
}
