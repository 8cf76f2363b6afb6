package agentupdate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/farm"
)

var noon = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

// always lets every update begin.
func always(string) bool { return true }

// running returns a rollout with a batch and a number of allowed failures.
func running(batch, failures int) *farm.AgentRollout {
	return &farm.AgentRollout{
		ID: "r", State: farm.RolloutRunning, Started: noon.Add(-time.Hour), BatchNodes: batch, MaxFailures: failures,
		Packages: []farm.RolloutPackage{{OS: "linux", Arch: "amd64", Version: "2.0.0", SHA256: "sum"}},
	}
}

// nodesIn returns nodes by letters of their stages; a capital letter is a canary.
func nodesIn(text string) []rolloutNode {
	stages := map[rune]nodeStage{
		'p': stagePending, 'o': stageOffline, 'u': stageUpdating, 'd': stageUpdated, 'f': stageFailed, 'l': stageLost,
		's': stageSkipped,
	}
	var list []rolloutNode
	for i, c := range text {
		lower := []rune(strings.ToLower(string(c)))[0]
		list = append(list, rolloutNode{
			ID: string(rune('a' + i)), Stage: stages[lower], IsCanary: c != lower, Since: noon.Add(-time.Minute),
		})
	}
	sortNodes(list)
	return list
}

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name     string
		batch    int
		failures int
		nodes    string
		begin    string
		state    farm.RolloutState
		wait     string
	}{
		{"the first batch", 2, 0, "pppp", "ab", farm.RolloutRunning, ""},
		{"one more slot", 2, 0, "updp", "b", farm.RolloutRunning, ""}, // in the order of the IDs
		{"all slots are used", 2, 0, "uupp", "", farm.RolloutRunning, "2 nodes update"},
		{"an offline node takes no slot", 1, 0, "opp", "b", farm.RolloutRunning, ""},
		{"a node that went offline takes no slot", 1, 1, "lpp", "b", farm.RolloutRunning, ""},
		{"a failure stops it", 2, 0, "fpp", "", farm.RolloutStopped, ""},
		{"a lost node stops it", 2, 0, "dlpp", "", farm.RolloutStopped, ""},
		{"allowed failures", 2, 1, "fppp", "bc", farm.RolloutRunning, ""},
		{"one failure too many", 2, 1, "flpp", "", farm.RolloutStopped, ""},
		{"the end", 2, 0, "ddos", "", farm.RolloutCompleted, ""},
		{"the last one continues", 2, 0, "ddu", "", farm.RolloutRunning, "no further node"},
		{"no node is in contact", 2, 0, "oo", "", farm.RolloutRunning, "no further node"},
		{"canaries come first", 5, 0, "pPpP", "bd", farm.RolloutRunning, ""},
		{
			"the others wait for the canaries", 5, 0, "pUpD", "", farm.RolloutRunning,
			"the canary nodes are not updated yet",
		},
		{"they follow", 5, 0, "pDpD", "ac", farm.RolloutRunning, ""},
		{"a canary that is offline does not block", 5, 0, "pDpO", "ac", farm.RolloutRunning, ""},
		{"no canary is in contact", 5, 0, "pOp", "", farm.RolloutRunning, "no canary node is in contact"},
		{"a failed canary blocks", 5, 1, "pFpD", "", farm.RolloutRunning, "the canary nodes are not updated yet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := planRollout(running(tt.batch, tt.failures), nodesIn(tt.nodes), noon, always)
			if got := strings.Join(plan.Begin, ""); got != tt.begin || plan.Next.State != tt.state ||
				!strings.Contains(plan.Wait, tt.wait) || (tt.wait == "") != (plan.Wait == "") {
				t.Errorf("begins %q, %s, waits %q; want %q, %s, %q",
					got, plan.Next.State, plan.Wait, tt.begin, tt.state, tt.wait)
			}
			if (plan.Next.State == farm.RolloutStopped) != (plan.Next.Reason != "") {
				t.Errorf("%s with the reason %q", plan.Next.State, plan.Next.Reason)
			}
		})
	}
}

// TestPlanOfOthers: a rollout that is not running begins nothing, and a completed one continues with nodes that come
// back.
func TestPlanOfOthers(t *testing.T) {
	for _, state := range []farm.RolloutState{farm.RolloutPaused, farm.RolloutStopped, farm.RolloutAborted} {
		r := running(2, 0).WithState(state, "why", noon)
		plan := planRollout(r, nodesIn("pff"), noon, always)
		if len(plan.Begin) != 0 || plan.Next != r || plan.Wait != "" {
			t.Errorf("%s: %+v", state, plan)
		}
	}
	completed := running(2, 0).WithState(farm.RolloutCompleted, "", noon)
	if plan := planRollout(completed, nodesIn("dp"), noon, always); !slices.Equal(plan.Begin, []string{"b"}) ||
		plan.Next != completed {
		t.Errorf("%+v", plan)
	}
	if plan := planRollout(completed, nodesIn("df"), noon, always); plan.Next.State != farm.RolloutStopped {
		t.Errorf("%+v", plan.Next)
	}
}

func TestCanaryWait(t *testing.T) {
	r := running(5, 0)
	r.CanaryWait = 2 * time.Minute
	nodes := nodesIn("Dpp") // a minute ago
	if plan := planRollout(r, nodes, noon, always); len(plan.Begin) != 0 ||
		plan.Wait != "the canary nodes are observed until 2027-01-01T12:01:00Z" {
		t.Errorf("%+v", plan)
	}
	if plan := planRollout(r, nodes, noon.Add(time.Minute), always); len(plan.Begin) != 2 {
		t.Errorf("%+v", plan)
	}
}

// TestRetries: a failed node takes a slot again when its next try is due.
func TestRetries(t *testing.T) {
	nodes := nodesIn("fp")
	nodes[0].RetryAt = noon.Add(time.Minute)
	if plan := planRollout(running(1, 1), nodes, noon, always); !slices.Equal(plan.Begin, []string{"b"}) {
		t.Errorf("%+v", plan)
	}
	plan := planRollout(running(1, 1), nodes, noon.Add(time.Minute), always)
	if !slices.Equal(plan.Begin, []string{"a"}) {
		t.Errorf("%+v", plan)
	}
	r := running(1, 0)
	r.Accepted = []string{"a"}
	if plan := planRollout(r, nodes, noon, always); !slices.Equal(plan.Begin, []string{"b"}) {
		t.Errorf("a failure that was accepted: %+v", plan)
	}
}

func TestBatchPercent(t *testing.T) {
	r := running(0, 0)
	r.BatchPercent = 20
	for nodes, want := range map[int]int{1: 1, 4: 1, 10: 2, 11: 2, 1000: 200} {
		if got := r.Batch(nodes); got != want {
			t.Errorf("of %d: %d, want %d", nodes, got, want)
		}
	}
}

// TestSlotsAreKept: whatever the nodes, no more than the batch update at a time, only nodes that are ready begin, and
// none begins beyond the allowed failures.
func TestSlotsAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[pouudfls]{0,12}[POUDFLS]{0,4}`).Draw(t, "nodes")
		r := running(rapid.IntRange(1, 6).Draw(t, "batch"), rapid.IntRange(0, 3).Draw(t, "failures"))
		nodes := nodesIn(text)
		ready := rapid.SampledFrom([]string{"", "abc", "abcdefghijklmnop"}).Draw(t, "ready")
		plan := planRollout(r, nodes, noon, func(id string) bool { return strings.Contains(ready, id) })
		lower := strings.ToLower(text)
		failed := strings.Count(lower, "f") + strings.Count(lower, "l")
		if len(plan.Begin) > 0 && (len(plan.Begin)+strings.Count(lower, "u") > r.BatchNodes || failed > r.MaxFailures) {
			t.Errorf("%q: begins %v with a batch of %d and %d failures allowed", text, plan.Begin, r.BatchNodes,
				r.MaxFailures)
		}
		for _, id := range plan.Begin {
			i := slices.IndexFunc(nodes, func(n rolloutNode) bool { return n.ID == id })
			if nodes[i].Stage != stagePending || !strings.Contains(ready, id) {
				t.Errorf("%q: begins %q", text, id)
			}
		}
	})
}

func TestStageOf(t *testing.T) {
	r := running(1, 0)
	info := &farm.NodeInfo{OS: "linux", Arch: "amd64", AgentVersion: "1.0.0"}
	updated := &farm.NodeInfo{OS: "linux", Arch: "amd64", AgentVersion: "2.0.0"}
	update := func(u farm.AgentUpdate) *farm.AgentUpdate {
		u.RolloutID, u.SHA256 = "r", "sum"
		return &u
	}
	for name, tt := range map[string]struct {
		node  farm.Node
		info  *farm.NodeInfo
		stage nodeStage
	}{
		"new":           {farm.Node{State: farm.NodeActive}, info, stagePending},
		"not described": {farm.Node{State: farm.NodeOffline}, &farm.NodeInfo{}, stageSkipped},
		"another platform": {
			farm.Node{State: farm.NodeActive}, &farm.NodeInfo{OS: "darwin", Arch: "arm64"}, stageSkipped,
		},
		"off for long":       {farm.Node{State: farm.NodeOffline}, info, stageOffline},
		"updated":            {farm.Node{State: farm.NodeActive}, updated, stageUpdated},
		"off since long ago": {farm.Node{State: farm.NodeOffline}, updated, stageUpdated},
		"off afterwards":     {farm.Node{State: farm.NodeOffline, StateSince: noon}, updated, stageLost},
		"updating": {
			farm.Node{State: farm.NodeUpdating, Update: update(farm.AgentUpdate{TryBegunAt: noon})},
			info, stageUpdating,
		},
		"off during it": {
			farm.Node{State: farm.NodeOffline, Update: update(farm.AgentUpdate{TryBegunAt: noon})}, info, stageLost,
		},
		"failed": {
			farm.Node{State: farm.NodeActive, Update: update(farm.AgentUpdate{LastFailure: "no"})}, info, stageFailed,
		},
		"of another rollout": {
			farm.Node{
				State: farm.NodeActive, Update: &farm.AgentUpdate{RolloutID: "x", SHA256: "sum", LastFailure: "no"},
			},
			info, stagePending,
		},
	} {
		if stage, reason := stageOf(r, &tt.node, tt.info); stage != tt.stage {
			t.Errorf("%s: %s (%s), want %s", name, stage, reason, tt.stage)
		}
	}
}
