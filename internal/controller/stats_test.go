package controller

import (
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/usage"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
)

func TestStatsOfAnEmptyCloud(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		synctest.Wait()
		s := c.Usage.Stats()
		if len(s.Instances) != len(farm.InstanceStates) || len(s.Nodes) != 6 {
			t.Errorf("states are missing: %v %v", s.Instances, s.Nodes)
		}
		s.Instances, s.Nodes = nil, nil
		if s.AverageQueueTime != 0 || s.TasksPerSecond != 0 || s.Capacity != 0 || s.QueueDepth != 0 ||
			s.OldestWait != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestStatsFollowTheLife(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		ids := c.mustStart(StartRequest{Count: 3})
		time.Sleep(10 * time.Second)
		if s := c.Usage.Stats(); s.QueueDepth != 3 || s.OldestWait != 10 || s.Instances["Scheduling"] != 3 ||
			s.AverageQueueTime != 0 {
			t.Errorf("while nothing can be placed: %+v", s)
		}
		a := c.join("one", 2)
		s := c.Usage.Stats()
		if s.QueueDepth != 1 || s.AverageQueueTime != 10 || s.Capacity != 2 || s.CapacityUsed != 2 ||
			s.Nodes["Active"] != 1 {
			t.Errorf("with two placed: %+v", s)
		}
		orders := a.next()
		time.Sleep(5 * time.Second)
		a.say(orders[0], api.PhaseRunning)
		a.say(orders[1], api.PhaseFailed)
		s = c.Usage.Stats() // the capacity of the failed one is free for the third
		if s.StartsLastHour != 1 || s.FailuresLastHour != 1 || s.Instances["Started"] != 1 ||
			s.Instances["Error"] != 1 || s.QueueDepth != 0 {
			t.Errorf("with one up: %+v", s)
		}
		if s.AverageQueueTime != 11.666667 { // 10, 10 and 15
			t.Errorf("average %v", s.AverageQueueTime)
		}
		for _, id := range ids {
			if err := c.Instances.Terminate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		for _, o := range a.next() {
			a.say(o, api.PhaseTerminated)
		}
		if s = c.Usage.Stats(); s.TerminationsLastHour != 3 || s.CapacityUsed != 0 || s.TasksPerSecond != 6./60 {
			t.Errorf("at the end: %+v", s)
		}
		c.samePicture()
		time.Sleep(2 * time.Minute)
		c.samePicture()
		if s = c.Usage.Stats(); s.Instances["Terminated"] != 0 || s.StartsLastHour != 1 {
			t.Errorf("when the records are gone: %+v", s)
		}
		time.Sleep(10 * time.Minute)
		if s = c.Usage.Stats(); s.AverageQueueTime != 0 || s.TasksPerSecond != 0 || s.StartsLastHour != 1 {
			t.Errorf("ten minutes later: %+v", s)
		}
		time.Sleep(time.Hour)
		if s = c.Usage.Stats(); s.StartsLastHour != 0 || s.FailuresLastHour != 0 || s.Nodes["Offline"] != 1 ||
			s.Capacity != 0 {
			t.Errorf("an hour later: %+v", s)
		}
	})
}

// samePicture compares the sums with the records themselves.
func (c *cloud) samePicture() {
	c.t.Helper()
	synctest.Wait()
	want := usage.Snapshot{States: map[string]int{}}
	for _, s := range farm.InstanceStates {
		want.States[string(s)] = 0
	}
	for _, inst := range c.tables.Instances.All() {
		want.States[string(inst.State)]++
		if inst.UsesCapacity() {
			want.Slots++
		}
		if inst.AwaitsPlacement() {
			want.Queue++
			want.Oldest = max(want.Oldest, c.now().Sub(inst.Created))
		}
	}
	got := c.Usage.Now()
	if !maps.Equal(got.States, want.States) || got.Slots != want.Slots || got.Queue != want.Queue ||
		got.Oldest != want.Oldest {
		c.t.Fatalf("the sums say %+v, the records %+v", got, want)
	}
}

// TestCountersAreTheSumOfTheRecords does random changes, with restarts in between.
func TestCountersAreTheSumOfTheRecords(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		dice := rand.New(rand.NewPCG(1, 2))
		a := c.join("one", 3)
		var ids []string
		for range 200 {
			switch dice.IntN(5) {
			case 0:
				ids = append(ids, c.mustStart(StartRequest{Count: 1 + dice.IntN(3)})...)
			case 1:
				for _, o := range a.next() {
					phases := []api.Phase{api.PhasePulling, api.PhaseRunning, api.PhaseFailed}
					if o.Kind == api.OrderTerminate {
						phases = []api.Phase{api.PhaseTerminated}
					}
					a.say(o, phases[dice.IntN(len(phases))])
				}
			case 2:
				if len(ids) > 0 {
					_ = c.Instances.Terminate(t.Context(), ids[dice.IntN(len(ids))])
				}
			case 3:
				time.Sleep(time.Duration(dice.IntN(int(time.Minute))))
			case 4:
				if dice.IntN(10) == 0 {
					c.restart()
				}
			}
			c.samePicture()
		}
	})
}

// TestReplicasCountAlike: a replica that does not place has the same statistics.
func TestReplicasCountAlike(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		second := c.replica()
		defer second.stop()
		a := c.join("one", 1)
		c.mustStart(StartRequest{Count: 2})
		a.say(a.take(api.OrderStart), api.PhaseRunning)
		time.Sleep(time.Second)
		synctest.Wait()
		one, two := c.Usage.Stats(), second.Usage.Stats()
		if one.Instances["Started"] != 1 || two.Instances["Started"] != 1 || one.StartsLastHour != two.StartsLastHour ||
			one.QueueDepth != two.QueueDepth {
			t.Errorf("%+v\n%+v", one, two)
		}
		second.samePicture()
	})
}

// TestRestartIsNoNews: records from before a start are counted by state alone.
func TestRestartIsNoNews(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		c.mustStart(StartRequest{Count: 2})
		a.say(a.take(api.OrderStart), api.PhaseRunning)
		c.restart()
		synctest.Wait()
		s := c.Usage.Stats()
		if s.StartsLastHour != 0 || s.AverageQueueTime != 0 || s.Instances["Started"] != 1 || s.QueueDepth != 1 ||
			s.Uptime != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestControllerFamilies(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		c.mustStart(StartRequest{Count: 2})
		a.say(a.take(api.OrderStart), api.PhaseRunning)
		a.contact()
		ctx, hung := t.Context(), make(chan struct{})
		go func() {
			defer close(hung)
			req := api.PollRequest{
				Protocol: api.LinkProtocol, NodeID: a.id, BootID: a.boot, InfoHash: "info",
				HeldHash: "1",
			}
			_, _ = c.Link.Poll(ctx, a.cred, req, 10*time.Second)
		}()
		synctest.Wait()
		got := metrictest.Values(c.Families())
		for name, want := range map[string]float64{
			"buildyard_node_polls_waiting": 1, "buildyard_queue_depth": 1, "buildyard_capacity_vms": 1,
			"buildyard_capacity_used_vms":       1,
			"buildyard_instances_started_total": 1, "buildyard_instances_placed_total": 1, "buildyard_start_seconds": 1,
			"buildyard_leader": 1, "buildyard_alarms": 0, "buildyard_license_info{enterprise plus}": 1,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v (%t), want %v", name, v, ok, want)
			}
		}
		if got["buildyard_scheduler_round_seconds"] == 0 {
			t.Error("no rounds are counted")
		}
		<-hung
	})
}
