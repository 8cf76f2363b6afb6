package controller

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/usage"
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
		}
	})
}
