package fleet

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/retry"
)

// delayedAPI is a link whose reports are delayed, as by a slow network.
type delayedAPI struct {
	agent.ControllerAPI
	reportDelay sim.DurationRange
}

// Report waits and then reports.
func (l *delayedAPI) Report(ctx context.Context, in api.Report) (api.ReportAnswer, error) {
	if err := retry.Sleep(ctx, durationAt(l.reportDelay, rand.Float64())); err != nil { //nolint:gosec // simulated luck, not a secret
		return api.ReportAnswer{}, err
	}
	return l.ControllerAPI.Report(ctx, in)
}

// durationAt returns the duration at a position, 0 to 1, of a range.
func durationAt(r sim.DurationRange, at float64) time.Duration {
	return r.Min + time.Duration(at*float64(max(r.Max-r.Min, 0)))
}

// seededRand draws values that depend on a seed and a name, not on the order of the calls.
type seededRand struct {
	failureRate float64 // share of failures
	seed        uint64
}

// draw returns the position of a name in its range, and whether it fails.
func (l seededRand) draw(name string) (at float64, fails bool) {
	f := fnv.New64a()
	_, _ = f.Write([]byte(name))
	rng := rand.New(rand.NewPCG(l.seed, f.Sum64())) //nolint:gosec // simulated luck, not a secret
	return rng.Float64(), rng.Float64() < l.failureRate
}

// How often simulated VMs are listed. With many nodes, listing alone would load the machine.
const (
	crowd      = 100
	watchCrowd = 5 * time.Second
)

// vmListInterval returns how often each node lists its VMs; 0 means the agent's default.
func (o *Options) vmListInterval() time.Duration {
	if o.NodeCount >= crowd {
		return watchCrowd
	}
	return 0
}
