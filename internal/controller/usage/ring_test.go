package usage

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// TestRangesOfTimelines samples two weeks with a gap, and compares each range with the samples themselves.
func TestRangesOfTimelines(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	end := start.Add(14 * 24 * time.Hour)
	inGap := func(at time.Time) bool {
		return at.After(end.Add(-50*time.Minute)) && at.Before(end.Add(-20*time.Minute))
	}
	for name, line := range map[string]timeline{"cloud": newCloudTimeline(), "part": newPartTimeline()} {
		running := map[time.Time]int{}
		for at := start; !at.After(end); at = at.Add(sampleEvery) {
			if n := random.IntN(9); !inGap(at) {
				running[at] = n
				line.each(at, func(p *point) { p.sample(measurement{running: n}) })
			}
		}
		for _, o := range seriesRanges {
			sums, counts := map[time.Time]int{}, map[time.Time]int{}
			for at, n := range running {
				sums[at.Truncate(o.step)] += n
				counts[at.Truncate(o.step)]++
			}
			var points int
			line.over(o, end, func(_ int, p *point) {
				points++
				got := p.toAPI(o.step)
				if got.Samples != counts[got.Time] ||
					math.Abs(got.Running-float64(sums[got.Time])/float64(counts[got.Time])) > .006 {
					t.Errorf("%s, %s, %s: %d samples, %v running; want %d, sum %d", name, o.name, got.Time,
						got.Samples, got.Running, counts[got.Time], sums[got.Time])
				}
			})
			want := 0
			first, last := o.bounds(end)
			for n := first; n <= last; n++ {
				if counts[o.start(n)] > 0 {
					want++
				}
			}
			if points != want || o.step <= 3*time.Minute && int64(points) == o.steps {
				t.Errorf("%s, %s: %d points of %d steps; want %d", name, o.name, points, o.steps, want)
			}
		}
	}
}

// TestSizeOfATimeline: what many nodes have stays small.
func TestSizeOfATimeline(t *testing.T) {
	line := newPartTimeline()
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for at := range 10 * 24 * 60 {
		line.each(start.Add(time.Duration(at)*time.Minute), func(p *point) { p.sample(measurement{active: 1}) })
	}
	var points int
	for _, r := range line {
		for _, chunk := range r.chunks {
			points += len(chunk)
		}
	}
	if size := points * int(reflect.TypeFor[point]().Size()); size > 40<<10 {
		t.Errorf("a timeline has %d points, %d bytes", points, size)
	}
}

func BenchmarkSampleOf1000Nodes(b *testing.B) {
	nodes := map[string]timeline{}
	measured := map[string]measurement{}
	for n := range 1000 {
		measured[strconv.Itoa(n)] = measurement{running: 2, active: 1}
	}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(sampleEvery)
		sampleParts(nodes, measured, maxNodeSeries, now)
	}
}

// TestCountBeforeSample: what happens on a node before it is measured for the first time is counted, also when that is
// in another step.
func TestCountBeforeSample(t *testing.T) {
	c, u := testUsage()
	for range 3 {
		u.series.failed(&farm.Instance{NodeID: "n", GroupID: "g"})
	}
	u.series.started(&farm.Instance{NodeID: "n"}, time.Second)
	c.now = c.now.Add(2 * time.Minute)
	if failed := u.FailedInstances(); failed["n"] != 3 {
		t.Errorf("failed starts: %v", failed)
	}
	s, err := u.NodeSeries(api.RangeHour, "n")
	if err != nil || len(s.Points) != 1 || s.Points[0].Starts != 1 || s.Points[0].Capacity != nil {
		t.Errorf("%+v, %v", s, err)
	}
	u.series.sample() // there is no such node
	if failed := u.FailedInstances(); len(failed) != 0 {
		t.Errorf("failed starts of a node that does not exist: %v", failed)
	}
}
