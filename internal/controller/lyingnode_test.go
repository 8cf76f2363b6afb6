package controller

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// countWrites counts the changes of records from now on that concern a node: its own, its description, and one
// instance.
func (c *cloud) countWrites(node, instance string) *atomic.Int64 {
	var n atomic.Int64
	c.t.Cleanup(c.store.Subscribe(func(events []store.Event) {
		for _, e := range events {
			if (e.Kind == record.KindNode || e.Kind == record.KindNodeInfo) && e.ID == node ||
				e.Kind == record.KindInstance && e.ID == instance {
				n.Add(1)
			}
		}
	}))
	return &n
}

// maxWrites returns the maximum number of descriptive writes of a node in a time.
func maxWrites(length time.Duration) int64 { return int64(writeBurst + length/writeInterval) }

// TestDescriptionsArePaced: a description that changes all the time is written from time to time,
// and its last state is written.
func TestDescriptionsArePaced(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		o := c.started(a)
		time.Sleep(writeBurst * writeInterval) // it may write again without delay, and is not Offline yet
		writes := c.countWrites(a.id, o.InstanceID)
		const length = 3 * time.Minute
		rounds := 0
		for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			rounds++
			info := *a.info
			info.OS = fmt.Sprint("os ", rounds)
			a.poll(api.PollRequest{Info: &info, Host: fmt.Sprint("host-", rounds)}, 0)
			a.say(o, api.PhaseRunning, func(s *api.InstanceStatus) { s.VM.Name = fmt.Sprint("vm ", rounds) })
			if rounds == 1 {
				if node, _, _ := c.tables.Nodes.Get(a.id); c.tables.NodeInfo(a.id).OS != "os 1" ||
					node.Host != "host-1" {
					t.Errorf("the first change is not written immediately: %s, %s", c.tables.NodeInfo(a.id).OS,
						node.Host)
				}
			}
		}
		if n := writes.Load(); n > maxWrites(length) || n < 10 {
			t.Errorf("%d writes in %s and %d rounds", n, length, rounds)
		}

		time.Sleep(4 * writeInterval) // no more reports
		synctest.Wait()
		node, _, _ := c.tables.Nodes.Get(a.id)
		inst, _, _ := c.tables.Instances.Get(o.InstanceID)
		if info := c.tables.NodeInfo(a.id); info.OS != fmt.Sprint("os ", rounds) ||
			node.Host != fmt.Sprint("host-", rounds) ||
			inst.VM.Name != fmt.Sprint("vm ", rounds) {
			t.Errorf("after %d rounds: %s, %s, %s", rounds, info.OS, node.Host, inst.VM.Name)
		}
		n := writes.Load()
		time.Sleep(time.Minute)
		if writes.Load() != n {
			t.Error("what was written is written again")
		}
	})
}

// TestTransitionsAreNotPaced: a change of an instance's state is written immediately, with the
// delayed reports.
func TestTransitionsAreNotPaced(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		c.mustStart(StartRequest{Count: 2})
		orders := a.next()
		for i := range 50 {
			for _, o := range orders {
				a.say(o, api.PhasePulling, func(s *api.InstanceStatus) { s.Progress = float64(i) / 100 })
			}
		}
		if inst, _, _ := c.tables.Instances.Get(orders[0].InstanceID); inst.PullProgress >= 0.49 {
			t.Fatalf("progress %v is written, so that nothing was put off", inst.PullProgress)
		}
		a.say(orders[1], api.PhaseRunning)
		c.wantState(orders[1].InstanceID, farm.Started)
		c.wantState(orders[0].InstanceID, farm.Pulling)
		if inst, _, _ := c.tables.Instances.Get(orders[0].InstanceID); inst.PullProgress != 0.49 {
			t.Errorf("progress %v", inst.PullProgress)
		}
		if err := c.Instances.Terminate(t.Context(), orders[0].InstanceID); err != nil {
			t.Fatal(err)
		}
		a.say(orders[0], api.PhaseTerminated)
		c.wantState(orders[0].InstanceID, farm.InstanceRemoved) // it never started
	})
}

// TestStatesInACircle: a VM that is reported to stop and to run again all the time causes few
// writes.
func TestStatesInACircle(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		o := c.started(a)
		writes := c.countWrites(a.id, o.InstanceID)
		const length = 3 * time.Minute
		rounds := 0
		for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			rounds++
			a.say(o, api.PhaseScriptFailed, func(s *api.InstanceStatus) { s.Script = &api.ScriptStatus{} })
			a.say(o, api.PhaseStopped)
			a.say(o, api.PhaseRunning)
		}
		if n := writes.Load(); n > 3*maxWrites(length) || n < 6 {
			t.Errorf("%d writes in %s and %d rounds", n, length, rounds)
		}
	})
}

// TestJoinsArePaced: a node that joins again and again under another name has to wait.
func TestJoinsArePaced(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		writes := c.countWrites(a.id, "")
		var last error
		for i := range 50 {
			_, last = c.Nodes.Join(t.Context(), api.JoinRequest{
				Token: c.Nodes.JoinToken(), NodeID: a.id, Credential: a.cred, Name: fmt.Sprint("name ", i), Host: "h",
			})
		}
		synctest.Wait()
		if n := writes.Load(); n > writeBurst || farm.CodeOf(last) != farm.CodeTooMany {
			t.Errorf("%d writes, %v", n, last)
		}
		time.Sleep(writeInterval)
		if _, err := c.Nodes.Join(t.Context(),
			api.JoinRequest{
				Token: c.Nodes.JoinToken(), NodeID: a.id, Credential: a.cred, Name: "last",
				Host: "h",
			}); err != nil {
			t.Error(err)
		}
	})
}

// TestStatusesOfOthersCountForNothing: old numbers, other claims, instances of other nodes and ids
// that do not exist change no record, and cost one read of the store however many there are.
func TestStatusesOfOthersCountForNothing(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, liar := c.join("one", 3), c.join("liar", 3)
		start := StartRequest{Options: farm.StartOptions{PinnedNode: a.id, Priority: farm.DefaultPriority}}
		id := c.mustStart(start)[0]
		o := a.take(api.OrderStart)
		a.no = 7
		a.say(o, api.PhaseRunning)
		before, rev, _ := c.tables.Instances.Get(id)
		waits := c.mustStart(start)[0] // placed, and not yet sent

		statuses := []api.InstanceStatus{
			{InstanceID: id, Claim: o.Claim, No: 99, Phase: api.PhaseVanished},
			{InstanceID: waits, Claim: o.Claim, No: 1, Phase: api.PhaseFailed, Message: "lie"},
		}
		for range 2000 {
			statuses = append(statuses,
				api.InstanceStatus{InstanceID: uuid.NewString(), Claim: "x", No: 1, Phase: api.PhaseRunning})
		}
		report := func(a *agent, statuses ...api.InstanceStatus) {
			t.Helper()
			if _, err := c.Link.Report(t.Context(), a.cred,
				api.Report{NodeID: a.id, BootID: a.boot, Statuses: statuses}); err != nil {
				t.Fatal(err)
			}
		}
		report(liar, statuses...)
		for _, no := range []int64{-1, 0, 7, 8} { // 8 is what the first report had
			report(a,
				api.InstanceStatus{InstanceID: id, Claim: o.Claim, No: no, Phase: api.PhaseVanished, Message: "old"})
		}
		report(a, api.InstanceStatus{InstanceID: id, Claim: "another", No: 99, Phase: api.PhaseVanished})
		synctest.Wait()
		if after, now, _ := c.tables.Instances.Get(id); now != rev || after != before {
			t.Errorf("the record has changed: %+v", after)
		}
		c.wantState(waits, farm.Scheduling)
		if _, err := c.Link.Report(t.Context(), liar.cred,
			api.Report{NodeID: a.id, BootID: a.boot}); farm.CodeOf(err) != farm.CodeUnauthenticated {
			t.Errorf("a report with another node's id: %v", err)
		}
	})
}

// TestLyingNode has a node report falsely in every way for ten minutes. The others are not
// affected.
func TestLyingNode(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		good, liar := c.join("good", 20), c.join("liar", 20)
		c.runs(good, 9)
		good.stray(1) // a leak
		writes := c.countWrites(liar.id, "")
		invented, cacheJobs := 0, 0
		removed := 0
		const length = 3 * time.Minute
		for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(5 * time.Second) {
			liar.held = nil
			for range maxOrphans + 200 { // others at every poll, and some that stay
				liar.held = append(liar.held, api.InventoryItem{VMID: fmt.Sprint("lie-", invented%(20*maxOrphans))})
				invented++
			}
			liar.stray(50)
			info := *liar.info
			info.OS, info.CPUs = fmt.Sprint(invented, strings.Repeat("x", 1<<16)), 1<<62
			if _, err := liar.tryPoll(api.PollRequest{Host: strings.Repeat("h", 1<<16)},
				0); farm.CodeOf(err) != farm.CodeInvalid {
				t.Fatalf("a host name of 64 KiB: %v", err)
			}
			liar.poll(api.PollRequest{Info: &info, Held: liar.held, HasHeld: true, Host: fmt.Sprint("host-", invented)},
				0)
			report := api.Report{NodeID: liar.id, BootID: liar.boot}
			for range 100 {
				cacheJobs++
				report.CacheJobs = append(report.CacheJobs,
					api.CacheJobStatus{ID: fmt.Sprint("errand-", cacheJobs), Stage: api.CacheJobDone})
				report.Statuses = append(report.Statuses,
					api.InstanceStatus{InstanceID: uuid.NewString(), Phase: api.PhaseRunning})
			}
			if _, err := c.Link.Report(t.Context(), liar.cred, report); err != nil {
				t.Fatal(err)
			}
			for _, o := range good.contact() {
				if o.Kind == api.OrderTerminate {
					removed++
				}
			}
		}
		if removed == 0 {
			t.Error("the leak of the other node is not removed")
		}
		if n := writes.Load(); n > maxWrites(length) {
			t.Errorf("%d writes in %s", n, length)
		}
		node, _, _ := c.tables.Nodes.Get(liar.id)
		if n := len(c.Link.Orphans.On(node)); n > maxOrphans {
			t.Errorf("%d orphaned VMs are kept", n)
		}
		status := c.Status(t.Context())
		if len(status.Alarms) != 1 || !strings.Contains(status.Alarms[0], "of node liar are orphaned") {
			t.Errorf("alarms = %q", status.Alarms)
		}
		if n := len(c.tables.NodeInfo(liar.id).OS); n > 255 {
			t.Errorf("an OS of %d bytes", n)
		}
		if id := c.mustStart(StartRequest{})[0]; c.state(id) != farm.Scheduling {
			t.Errorf("a new instance is %s", c.state(id))
		}
	})
}
