package usage

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
)

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
		f := p.toRecord()
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
	for d, want := range map[time.Duration]int{
		-1: 0, 0: 0, time.Millisecond: 0, 11 * time.Millisecond: 1, 1000 * time.Hour: startClasses - 1,
	} {
		if got := classOf(d); got != want {
			t.Errorf("%v is of class %d", d, got)
		}
	}
	hostile := record.SeriesStep{
		At: math.MaxInt64, Samples: -1, Running: -5, Capacity: math.MaxInt64, Pulled: -1, LeastActive: 1 << 40,
		Starts: []uint32{9999, 1, 3},
	}
	p := pointOf(&hostile)
	if p.starts != nil || p.samples != 0 || p.running != 0 || p.pulled != 0 {
		t.Errorf("values that no replica records: %+v", p)
	}
	p.toAPI(time.Minute)
}

// TestPointsOfSamples: means, extremes, and what is absent because it was not measured.
func TestPointsOfSamples(t *testing.T) {
	var p point
	p.sample(measurement{running: 3, queue: 2, slots: 4, capacity: 10, active: 5, cpu: .25, ram: .5, hasLoad: true})
	p.sample(measurement{running: 1, queue: 6, slots: 2, capacity: 2, active: 1, offline: 4})
	p.failures = 2
	f := p.toRecord()
	read := pointOf(&f)
	for name, q := range map[string]*point{"of samples": &p, "recorded": &read} {
		got := q.toAPI(time.Minute)
		if got.Samples != 2 || got.Running != 2 || got.Queue != 4 || got.QueuePeak != 6 || got.Failures != 2 ||
			*got.SlotsUsed != 3 || *got.Capacity != 6 || *got.ActiveNodes != 3 || *got.ActiveNodesMin != 1 ||
			*got.OfflineNodes != 2 || *got.OfflineNodesMax != 4 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := p.toAPI(time.Minute); *got.CPUUtil != .25 || *got.RAMUtil != .5 {
		t.Errorf("load: %v, %v", *got.CPUUtil, *got.RAMUtil)
	}
	old := pointOf(&record.SeriesStep{Samples: 2, Running: 4})
	if got := old.toAPI(time.Minute); got.Running != 2 || got.ActiveNodes != nil || got.ActiveNodesMin != nil ||
		got.OfflineNodesMax != nil || got.Capacity != nil || got.CPUUtil != nil {
		t.Errorf("a record without nodes: %+v", got)
	}
}
