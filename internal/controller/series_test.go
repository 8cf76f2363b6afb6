package controller

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
)

// sum adds up the points of a range.
func (c *cloud) sum(over string) (s api.SeriesPoint, points int) {
	c.t.Helper()
	synctest.Wait()
	all, err := c.Series(over)
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
			if s.Starts != 2 || s.Pulled != 7500 || s.QueuePeak != 3 || s.Running == 0 || s.StartP50 == nil || math.Abs(*s.StartP50-30) > 30*.06 || *s.StartP95 != *s.StartP50 {
				t.Errorf("%s: %+v", over, s)
			}
		}
		if _, err := c.Series("1y"); err == nil {
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
		time.Sleep(2*keepEvery + time.Minute)
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
		time.Sleep(keepEvery + time.Minute)
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

// TestSharesOfStarts compares percentiles with those of the times themselves, also of points
// that were recorded and merged.
func TestSharesOfStarts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var sum point
	var all []float64
	for range 50 {
		p := point{samples: 1}
		for range random.IntN(40) {
			seconds := math.Exp(random.NormFloat64() + 3)
			all = append(all, seconds)
			p.start(classOf(time.Duration(seconds * float64(time.Second))))
		}
		f := p.figure()
		read := pointOf(&f)
		sum.add(&read)
	}
	slices.Sort(all)
	for _, share := range []float64{.01, .5, .95, 1} {
		want, got := all[int(math.Ceil(share*float64(len(all))))-1], *sum.within(share)
		if math.Abs(got-want) > .06*want {
			t.Errorf("%v of them are up in %v s, not %v s", share, want, got)
		}
	}
	if sum.started() != len(all) || new(point).within(.5) != nil {
		t.Errorf("%d of %d", sum.started(), len(all))
	}
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, time.Millisecond: 0, 11 * time.Millisecond: 1, 1000 * time.Hour: startClasses - 1} {
		if got := classOf(d); got != want {
			t.Errorf("%v is of class %d", d, got)
		}
	}
	hostile := record.SeriesStep{Starts: []uint32{9999, 1, 3}}
	if p := pointOf(&hostile); p.starts != nil {
		t.Error("a class that there is not")
	}
}
