package controller

import (
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/usage"
	"github.com/buildyard/buildyard/internal/farm"
)

// sum adds up the points of a range.
func (c *cloud) sum(over string) (s api.SeriesPoint, points int) {
	c.t.Helper()
	synctest.Wait()
	all, err := c.Usage.Series(over)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range all.Points {
		s.Running = max(s.Running, p.Running)
		s.QueuePeak = max(s.QueuePeak, p.QueuePeak)
		s.Starts += p.Starts
		s.Pulled += p.Pulled
		if p.StartP50 != nil {
			s.StartP50, s.StartP95 = p.StartP50, p.StartP95
		}
	}
	return s, len(all.Points)
}

var ranges = []string{api.RangeHour, api.RangeQuarter, api.RangeDay, api.RangeWeek}

func TestSeriesFollowTheCloud(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.mustStart(StartRequest{Count: 3})
		time.Sleep(30 * time.Second)
		a := c.join("one", 2)
		for _, o := range a.next() {
			a.say(o, api.PhaseRunning)
		}
		a.poll(api.PollRequest{Pulled: 7000}, 0)
		a.poll(api.PollRequest{Pulled: 500}, 0)
		a.poll(api.PollRequest{Pulled: -math.MaxInt64}, 0)
		for range 12 { // the node stays in contact
			time.Sleep(10 * time.Second)
			a.poll(api.PollRequest{}, 0)
		}
		for _, over := range ranges {
			s, _ := c.sum(over)
			if s.Starts != 2 || s.Pulled != 7500 || s.QueuePeak != 3 || s.Running == 0 || s.StartP50 == nil ||
				math.Abs(*s.StartP50-30) > 30*.06 || *s.StartP95 != *s.StartP50 {
				t.Errorf("%s: %+v", over, s)
			}
		}
		if _, err := c.Usage.Series("1y"); err == nil {
			t.Error("there is no such range")
		}
	})
}

// TestSeriesOutliveTheController: a new controller resumes from the recorded points, and a second
// replica knows those from before its start.
func TestSeriesOutliveTheController(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		a.poll(api.PollRequest{Pulled: 7000}, 0)
		time.Sleep(2*usage.StoreInterval + time.Minute)
		_, before := c.sum(api.RangeHour)
		c.away(time.Hour / 4)
		s, points := c.sum(api.RangeHour)
		if s.Pulled != 7000 || points < before-6 || points > before+1 {
			t.Errorf("%d points after %d: %+v", points, before, s)
		}
		other := c.replica()
		if s, _ := other.sum(api.RangeWeek); s.Pulled != 7000 {
			t.Errorf("the second one knows %+v", s)
		}
		other.stop()
		c.away(8 * 24 * time.Hour)
		time.Sleep(usage.StoreInterval + time.Minute)
		if s, points := c.sum(api.RangeWeek); s.Pulled != 0 || points > 2 {
			t.Errorf("after more than a week %d points: %+v", points, s)
		}
		if n := c.tables.Series.Len(); n > 4 {
			t.Errorf("%d records are left", n)
		}
	})
}

// TestSeriesOfReplicas: the other replicas count what a node reports to one replica as well, one
// time.
func TestSeriesOfReplicas(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		other := c.replica()
		defer other.stop()
		a := c.join("one", 2)
		time.Sleep(time.Minute) // they receive each other's digests
		a.poll(api.PollRequest{Pulled: 7000}, 0)
		time.Sleep(time.Minute)
		for name, r := range map[string]*cloud{"polled": c, "other": other} {
			if s, _ := r.sum(api.RangeHour); s.Pulled != 7000 {
				t.Errorf("the %s one counts %d bytes", name, s.Pulled)
			}
			if s, err := r.Usage.NodeSeries(api.RangeHour, a.id); err != nil || extremes(s).pulled != 7000 {
				t.Errorf("the %s one counts %+v of the node, %v", name, extremes(s), err)
			}
		}
	})
}

// TestSeriesOfNodesAndGroups: what happens on a node is in its series and in those of its groups, and an outage
// is visible in each.
func TestSeriesOfNodesAndGroups(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		group := c.mustGroup("ci", nil).ID
		a, b := c.join("one", 2), c.join("two", 3)
		if err := c.Groups.AddNode(t.Context(), a.id, []string{group}); err != nil {
			t.Fatal(err)
		}
		ids := c.mustStart(StartRequest{Count: 2, GroupID: group})
		time.Sleep(15 * time.Second) // until the group is considered, and the series of the nodes have begun
		c.wantOn(ids[0], a)
		c.wantOn(ids[1], a)
		orders := a.next()
		a.say(orders[0], api.PhaseRunning)
		a.say(orders[1], api.PhaseFailed)
		a.poll(api.PollRequest{Pulled: 7000, Usage: &api.Usage{CPU: .5, RAM: .25}}, 0)
		b.poll(api.PollRequest{Pulled: 500}, 0)
		for range 30 {
			time.Sleep(10 * time.Second)
			a.poll(api.PollRequest{Usage: &api.Usage{CPU: .5, RAM: .25}}, 0)
			b.poll(api.PollRequest{}, 0)
		}
		time.Sleep(3*time.Minute + 50*time.Second) // an outage of both, in which no instance ends yet
		synctest.Wait()
		for _, over := range ranges {
			cloud, err1 := c.Usage.Series(over)
			node, err2 := c.Usage.NodeSeries(over, a.id)
			ofGroup, err3 := c.Usage.GroupSeries(over, group)
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]struct {
				api.Series
				pulled   int64
				capacity float64
				nodes    int
				cpu      float64
			}{"cloud": {cloud, 7500, 5, 2, 0}, "node": {node, 7000, 2, 1, .5}, "group": {ofGroup, 7000, 2, 1, 0}} {
				got := extremes(want.Series)
				if got.pulled != want.pulled || got.starts != 1 || got.failures != 1 || got.offline != want.nodes ||
					got.cpu != want.cpu || got.capacity > want.capacity || got.capacity == 0 {
					t.Errorf("%s, %s: %+v", name, over, got)
				}
			}
		}
		cloud, err := c.Usage.Series(api.RangeHour)
		if last := cloud.Points[len(cloud.Points)-1]; err != nil || last.Running != 0 || *last.OfflineNodes != 2 ||
			c.Usage.Stats().Instances[string(farm.Started)] != 1 {
			t.Errorf("in the outage: %+v, %v", last, err)
		}
		if failed := c.Usage.FailedInstances(); len(failed) != 1 || failed[a.id] != 1 {
			t.Errorf("failed starts: %v", failed)
		}
		if s, err := c.Usage.NodeSeries(api.RangeHour, "unknown"); err != nil || len(s.Points) != 0 {
			t.Errorf("of an unknown node: %+v, %v", s, err)
		}
		c.wantSparklines(t, a.id, group)
	})
}

// seriesExtremes are sums and extremes over the points of a series.
type seriesExtremes struct {
	pulled                    int64
	starts, failures, offline int
	cpu, capacity             float64
}

func extremes(s api.Series) (e seriesExtremes) {
	for _, p := range s.Points {
		e.pulled += p.Pulled
		e.starts += p.Starts
		e.failures += p.Failures
		e.offline = max(e.offline, *p.OfflineNodesMax)
		e.capacity = max(e.capacity, *p.Capacity)
		if p.CPUUtil != nil {
			e.cpu = max(e.cpu, *p.CPUUtil)
		}
	}
	return e
}

func (c *cloud) wantSparklines(t *testing.T, node, group string) {
	t.Helper()
	nodes, err1 := c.Usage.NodeSparklines(api.RangeHour, []string{"unknown", node})
	groups, err2 := c.Usage.GroupSparklines(api.RangeHour)
	if err := errors.Join(err1, err2); err != nil || len(nodes.Series) != 1 || len(groups.Series) != 1 {
		t.Fatalf("%+v, %+v, %v", nodes, groups, err)
	}
	n, g := nodes.Series[0], groups.Series[0]
	if n.ID != node || n.Name != "one" || g.ID != group || g.Name != "ci" || n.Queue != nil || g.CPUUtil != nil ||
		len(n.CPUUtil) != 60 || len(g.Running) != 60 {
		t.Errorf("%+v, %+v", n, g)
	}
	if n.Running[0] != nil || n.CPUUtil[59] != nil || lastOf(n.ActiveNodes) != 0 || lastOf(g.ActiveNodes) != 0 {
		t.Error("values that were not measured, or an unknown node")
	}
}

// lastOf returns the last number that was measured; -1: none was.
func lastOf(list []*float64) float64 {
	for _, n := range slices.Backward(list) {
		if n != nil {
			return *n
		}
	}
	return -1
}

// TestGroupSeriesOutliveTheController: a new controller resumes the series of groups, and those of nodes begin again.
func TestGroupSeriesOutliveTheController(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		group := c.mustGroup("ci", nil).ID
		a := c.join("one", 2)
		if err := c.Groups.AddNode(t.Context(), a.id, []string{group}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second) // until the first measurement of the group
		a.poll(api.PollRequest{Pulled: 7000}, 0)
		time.Sleep(2*usage.StoreInterval + time.Minute)
		c.away(time.Hour / 4)
		synctest.Wait()
		for _, over := range ranges {
			got, err1 := c.Usage.GroupSeries(over, group)
			node, err2 := c.Usage.NodeSeries(over, a.id)
			if err := errors.Join(err1, err2); err != nil || extremes(got).pulled != 7000 ||
				extremes(node).pulled != 0 {
				t.Errorf("%s: %+v of the group, %+v of the node, %v", over, extremes(got), extremes(node), err)
			}
		}
		c.away(8 * 24 * time.Hour)
		time.Sleep(usage.StoreInterval + time.Minute)
		if n := c.tables.Series.Len(); n > 12 {
			t.Errorf("%d records are left", n)
		}
	})
}

// TestUsageOutlivesTheController: instance hours are counted once, by whichever controller.
func TestUsageOutlivesTheController(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		c.started(a)
		for range 3 * 6 * 60 {
			time.Sleep(10 * time.Second)
			a.poll(api.PollRequest{}, 0)
		}
		other := c.replica()
		a.poll(api.PollRequest{}, 0)
		c.away(time.Minute)
		time.Sleep(time.Second)
		for name, r := range map[string]*cloud{"new": c, "other": other} {
			for _, by := range []string{api.ByGroup, api.ByOwner, api.ByTemplate} {
				got, err := r.Usage.Report(by, api.RangeDay, nil)
				if err != nil || len(got.Rows) != 1 || got.Rows[0].Starts != 1 ||
					math.Abs(got.Rows[0].InstanceHours-3) > .2 {
					t.Errorf("%s, by %s: %+v, %v", name, by, got.Rows, err)
				}
			}
		}
		other.stop()
	})
}
