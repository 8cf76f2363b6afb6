package controller

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/agentupdate"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/farm"
)

// cupboard has agent packages for linux/amd64.
type cupboard struct {
	mu      sync.Mutex
	version string // "": there is none
	changed chan struct{}
}

func newCupboard(version string) *cupboard {
	return &cupboard{version: version, changed: make(chan struct{}, 1)}
}

func (b *cupboard) put(version string) {
	b.mu.Lock()
	b.version = version
	b.mu.Unlock()
	b.changed <- struct{}{}
	time.Sleep(3 * time.Second) // until the leader has checked
	synctest.Wait()
}

func (b *cupboard) Packages() []api.AgentPackage {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.version == "" {
		return nil
	}
	return []api.AgentPackage{{Name: "p", Version: b.version, OS: "linux", Arch: "amd64", Size: 1, SHA256: "sum of " +
		b.version, Signed: "signed"}}
}

func (b *cupboard) PackageFor(system, arch string) (api.AgentPackage, bool) {
	for _, p := range b.Packages() {
		if p.OS == system && p.Arch == arch {
			return p, true
		}
	}
	return api.AgentPackage{}, false
}

func (*cupboard) Keys() string { return "a key" }
func (*cupboard) MissingHint(system, arch string) string {
	return "Put one for " + system + "/" + arch + " there"
}
func (*cupboard) Problem() string            { return "" }
func (*cupboard) Refresh()                   {}
func (b *cupboard) Changed() <-chan struct{} { return b.changed }

var _ agentupdate.PackageDirectory = (*cupboard)(nil)

// inUpdates runs a test in a cloud with packages, whose nodes are updated automatically only with
// byItself.
func inUpdates(t *testing.T, b *cupboard, byItself bool, test func(t *testing.T, c *cloud)) {
	t.Helper()
	inCloud(t, func(t *testing.T, c *cloud) {
		c.stop()
		c.start(Options{Packages: b, NoNodeUpgrades: !byItself})
		test(t, c)
	})
}

// runs makes the node report the version of its agent.
func (a *agent) runs(version string) *agent {
	a.t.Helper()
	info := *a.info
	info.OS, info.AgentVersion = "linux", version
	a.info = &info
	a.contact()
	synctest.Wait()
	return a
}

// hears polls and returns the update that the node receives.
func (a *agent) hears(status *api.UpdateStatus) *api.AgentUpdate {
	a.t.Helper()
	answer, err := a.tryPoll(api.PollRequest{Update: status, Held: a.held, HasHeld: true}, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	synctest.Wait()
	return answer.Update
}

// reborn returns the node's next agent.
func (a *agent) reborn(version string) {
	a.t.Helper()
	a.boot = uuid.NewString()
	time.Sleep(takeoverAfter)
	a.runs(version)
}

func (c *cloud) wantNodeState(a *agent, state farm.NodeState, reason string) *farm.Node {
	c.t.Helper()
	n := c.node(a).Node
	if n.State != state || !strings.Contains(n.StateReason, reason) || (reason == "") != (n.StateReason == "") {
		c.t.Fatalf("node is %q (%s), want %q (%s)", n.State, n.StateReason, state, reason)
	}
	return n
}

// TestNodesAreUpdated covers a whole update: the node gets no starts until its new agent runs, its
// instances continue, and a drain stays.
func TestNodesAreUpdated(t *testing.T) {
	b := newCupboard("2.0.0-b")
	inUpdates(t, b, false, func(t *testing.T, c *cloud) {
		a := c.join("one", 2).runs("1.0.0-a")
		vm := c.mustStart(StartRequest{})[0]
		a.say(a.take(api.OrderStart), api.PhaseRunning)
		a.keepContact(2 * reconcile.SweepInterval)
		c.wantNodeState(a, farm.NodeActive, "")
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		c.wantNodeState(a, farm.NodeUpdating, "its agent becomes 2.0.0-b")
		waits := c.mustStart(StartRequest{})[0]
		c.wantOn(waits, nil)
		u := a.hears(nil)
		if u == nil || u.Package.Version != "2.0.0-b" || u.Package.Signed != "signed" || !u.Force {
			t.Fatalf("told %+v", u)
		}
		if err := c.Updates.Request(t.Context(), []string{a.id}, nil); err != nil { // again
			t.Fatal(err)
		}
		if again := a.hears(&api.UpdateStatus{ID: u.ID, Stage: api.UpdateLoading, Progress: 0.5}); again == nil ||
			again.ID != u.ID {
			t.Errorf("told %+v", again)
		}
		if stage := c.node(a).Stage; stage != "50 % of the package is downloaded" {
			t.Errorf("stage %q", stage)
		}
		c.mustConfigure(a, nodes.Config{Drain: new(true)})
		a.reborn("2.0.0-b")
		if n := c.wantNodeState(a, farm.NodeActive, ""); n.Update != nil || !n.Drain {
			t.Errorf("%+v", n)
		}
		c.mustConfigure(a, nodes.Config{Drain: new(false)})
		c.wantState(vm, farm.Started)
		c.wantOn(waits, a)
		if u := a.hears(nil); u != nil {
			t.Errorf("told %+v", u)
		}
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		c.wantNodeState(a, farm.NodeActive, "")
	})
}

// TestUpdateWakesThePoll: a node that waits for work receives its update immediately.
func TestUpdateWakesThePoll(t *testing.T) {
	inUpdates(t, newCupboard("2.0.0-b"), false, func(t *testing.T, c *cloud) {
		a := c.join("one", 2).runs("1.0.0-a")
		began := time.Now()
		told := make(chan *api.AgentUpdate)
		go func() {
			answer, err := a.tryPoll(api.PollRequest{}, 20*time.Second)
			if err != nil {
				t.Error(err)
			}
			told <- answer.Update
		}()
		time.Sleep(time.Second)
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		if u := <-told; u == nil || time.Since(began) > 2*time.Second {
			t.Errorf("told %+v after %s", u, time.Since(began))
		}
		if a.poll(api.PollRequest{}, 5*time.Second); time.Since(began) < 5*time.Second {
			t.Error("the next poll does not hang")
		}
	})
}

// TestFailedUpdates: the node is back immediately, reports the reason, and the number of tries is
// bounded.
func TestFailedUpdates(t *testing.T) {
	inUpdates(t, newCupboard("2.0.0-b"), false, func(t *testing.T, c *cloud) {
		a := c.join("one", 2).runs("1.0.0-a")
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for range 200 { // a minute each
			if u := a.hears(nil); u != nil {
				seen[u.ID] = true
				a.hears(&api.UpdateStatus{ID: "another", Stage: api.UpdateFailed, Message: "x"})
				c.wantNodeState(a, farm.NodeUpdating, "its agent becomes")
				if u := a.hears(&api.UpdateStatus{ID: u.ID, Stage: api.UpdateFailed, Message: "no room"}); u != nil {
					t.Fatalf("told again at once: %+v", u)
				}
				n := c.wantNodeState(a, farm.NodeActive, "its agent could not become 2.0.0-b: no room")
				if n.Update.LastFailure != "no room" || n.Update.Tries != len(seen) {
					t.Fatalf("%+v", n.Update)
				}
			}
			time.Sleep(time.Minute)
		}
		if len(seen) != farm.MaxUpdateTries {
			t.Errorf("tried %d times", len(seen))
		}
		a.contact()
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		if n := c.wantNodeState(a, farm.NodeUpdating, ""+"its agent becomes"); n.Update.Tries != 1 {
			t.Errorf("%+v", n.Update)
		}
	})
}

// TestDeafAgents: an agent without support for updates keeps its node out of work for a minute
// only, one that reports no progress for three hours.
func TestDeafAgents(t *testing.T) {
	inUpdates(t, newCupboard("2.0.0-b"), false, func(t *testing.T, c *cloud) {
		deaf, stuck := c.join("deaf", 2).runs("1.0.0-a"), c.join("stuck", 2).runs("1.0.0-a")
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		u, begun := stuck.hears(nil), time.Now()
		for range 3 {
			deaf.hears(nil)
			stuck.hears(&api.UpdateStatus{ID: u.ID, Stage: api.UpdateWaiting, Message: "a script"})
			time.Sleep(updateReportTime / 2)
		}
		c.wantNodeState(deaf, farm.NodeActive, "does not support updates")
		for time.Since(begun) < agentupdate.UpdateTimeout-time.Minute {
			c.wantNodeState(stuck, farm.NodeUpdating, "becomes")
			stuck.hears(&api.UpdateStatus{ID: u.ID, Stage: api.UpdateWaiting, Message: "a script"})
			deaf.hears(nil)
			time.Sleep(time.Minute)
		}
		for c.node(stuck).Node.State == farm.NodeUpdating &&
			time.Since(begun) < agentupdate.UpdateTimeout+2*reconcile.SweepInterval {
			stuck.hears(&api.UpdateStatus{ID: u.ID, Stage: api.UpdateWaiting, Message: "a script"})
			time.Sleep(5 * time.Second)
		}
		c.wantNodeState(stuck, farm.NodeActive, "within 3h0m0s")
	})
}

// TestNodesFollowTheirPackages: automatically, a few at a time, and never to an older one.
func TestNodesFollowTheirPackages(t *testing.T) {
	b := newCupboard("1.0.0-a")
	inUpdates(t, b, true, func(t *testing.T, c *cloud) {
		var all []*agent
		for range 20 {
			all = append(all, c.join(uuid.NewString(), 2).runs("1.0.0-a"))
		}
		other := c.join("other", 2)
		other.info = &api.NodeInfo{
			Arch: "arm64", OS: "darwin", CPUs: 8, MemoryMB: 16384, Driver: "sim",
			AgentVersion: "0.1.0-x",
		}
		other.contact()
		going := func() (n int) {
			for _, a := range all {
				if c.node(a).Node.State == farm.NodeUpdating {
					n++
				}
			}
			return n
		}
		time.Sleep(reconcile.SweepInterval)
		for _, a := range all { // an update begins only on nodes in contact
			a.contact()
		}
		if going() != 0 {
			t.Fatal("nodes with the version are updated")
		}
		b.put("0.9.0-z")
		if going() != 0 {
			t.Fatal("nodes are made older by themselves")
		}
		b.put("1.1.0-b")
		for left := all; len(left) > 0; time.Sleep(3 * time.Second) {
			if got := going(); got == 0 || got > 2 {
				t.Fatalf("%d of 21 nodes are updated at once, %d are left", got, len(left))
			}
			var later []*agent
			for _, a := range left {
				if c.node(a).Node.State != farm.NodeUpdating {
					later = append(later, a)
					continue
				}
				if u := a.hears(nil); u == nil || u.Force {
					t.Fatalf("told %+v", u)
				}
				a.reborn("1.1.0-b")
			}
			for _, a := range slices.Concat(all, []*agent{other}) {
				a.contact()
			}
			left = later
		}
		if going() != 0 {
			t.Error("an update goes on")
		}
		c.wantNodeState(other, farm.NodeActive, "")
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		b.put("1.0.0-a")
		if going() != 0 {
			t.Error("nodes are made older by themselves")
		}
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		if going() != 20 {
			t.Errorf("%d nodes are made older on demand", going())
		}
	})
}

// TestOfflineNodesFollow: offline nodes are updated when they return, also after a restart of the
// controller.
func TestOfflineNodesFollow(t *testing.T) {
	b := newCupboard("2.0.0-b")
	inUpdates(t, b, false, func(t *testing.T, c *cloud) {
		away, amid := c.join("away", 2).runs("1.0.0-a"), c.join("amid", 2).runs("1.0.0-a")
		for range 5 {
			time.Sleep(time.Minute)
			amid.contact()
		}
		c.wantNodeState(away, farm.NodeOffline, "no contact")
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		c.wantNodeState(away, farm.NodeOffline, "no contact")
		u := amid.hears(nil)
		time.Sleep(5 * time.Minute)
		c.wantNodeState(amid, farm.NodeOffline, "no contact")
		c.stop()
		c.start(Options{Packages: b, NoNodeUpgrades: true})
		amid.boot = uuid.NewString()
		amid.contact()
		c.wantNodeState(amid, farm.NodeUpdating, "becomes")
		if again := amid.hears(nil); again == nil || again.ID != u.ID {
			t.Errorf("told %+v, was %+v", again, u)
		}
		away.contact()
		time.Sleep(2 * reconcile.SweepInterval)
		away.contact()
		c.wantNodeState(away, farm.NodeUpdating, "becomes")
		amid.reborn("2.0.0-b")
		c.wantNodeState(amid, farm.NodeActive, "")
	})
}

func TestWhatCannotBeUpdated(t *testing.T) {
	b := newCupboard("")
	inUpdates(t, b, true, func(t *testing.T, c *cloud) {
		wantRefused(t, c.Updates.Request(t.Context(), nil, nil), farm.CodeRefused,
			"No node agent can be updated. Put one for linux/amd64 there")
		a := c.join("one", 2).runs("1.0.0-a")
		wantRefused(t, c.Updates.Request(t.Context(), nil, nil), farm.CodeRefused, "Put one for linux/amd64 there")
		wantRefused(t, c.Updates.Request(t.Context(), []string{a.id}, nil), farm.CodeRefused,
			"Agent of node one cannot be updated. Put one for linux/amd64 there")
		wantRefused(t, c.Updates.Request(t.Context(), []string{"x"}, nil), farm.CodeNotFound, "Not found")
		b.put("2.0.0-b")
		c.wantNodeState(a, farm.NodeUpdating, "becomes 2.0.0-b")
		b.put("3.0.0-c") // another one, amid the update to the first
		if u := a.hears(nil); u != nil {
			t.Errorf("told %+v", u)
		}
		if err := c.Updates.Request(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		if u := a.hears(nil); u == nil || u.Package.Version != "3.0.0-c" {
			t.Errorf("told %+v", u)
		}
	})
}
