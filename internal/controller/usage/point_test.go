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
	hostile := record.SeriesStep{Starts: []uint32{9999, 1, 3}}
	if p := pointOf(&hostile); p.starts != nil {
		t.Error("a class that there is not")
	}
}
