package buildyard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// TestListsStayRightWhileEverythingMoves reads every list and every single record while versions
// are pushed, reverted and deleted, distributed and removed, and instances come and go: each answer
// has its shape, and no field ever changes its type. BUILDYARD_LISTS sets the duration, 4 s by
// default.
func TestListsStayRightWhileEverythingMoves(t *testing.T) {
	length := 4 * time.Second
	if text := os.Getenv("BUILDYARD_LISTS"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	y := newYard(t)
	y.nodes("real", 2)
	y.nodes("sim", 4, func(o *fleet.Options) {
		o.RealPulls, o.DataDir, o.PullFailureRate = false, "", 0.1
		o.PullTime = sim.DurationRange{Min: 20 * time.Millisecond, Max: 300 * time.Millisecond}
		o.Sim.Boot, o.Sim.Delete = sim.DurationRange{Max: 50 * time.Millisecond},
			sim.DurationRange{Max: 50 * time.Millisecond}
		o.Sim.BootFailureRate = 0.1
	})
	m := &mover{yard: y, ended: map[string]bool{}, shapes: &shapes{seen: map[string]string{}}}
	m.disks = []string{y.disk(1, 1), y.disk(2, 1), y.disk(3, 1)}
	for i := range 2 {
		m.templates = append(m.templates, y.push("", fmt.Sprintf("first-%d", i), m.disks[i]).ID)
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	for i, work := range []func(context.Context, *rand.Rand){
		m.publish, m.run, m.run, m.distribute, m.distribute, m.readAll, m.readAll, m.readEach,
	} {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(length)))
			for ctx.Err() == nil {
				work(ctx, rng)
			}
		})
	}
	wg.Wait()
	t.Logf("%d answers, %d fields, %d changes", m.answers.Load(), len(m.shapes.seen), m.changes.Load())
	if m.answers.Load() < 50 || m.changes.Load() < 20 {
		t.Error("hardly anything was done")
	}
	m.settle()
}
