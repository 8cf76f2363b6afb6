package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/fault"
	"github.com/buildyard/buildyard/test/rig"
)

// drill is one fault at one part, several times, under load.
type drill struct {
	cloud   *cloud
	part    part
	kind    faultKind
	count   int
	seed    uint64
	strikes strikeOptions

	rng  *rand.Rand
	load *fault.Workload
}

// calmTime is how long everything may take to calm down after the last strike: a node that was away is
// Offline for two minutes at most.
const calmTime = 3 * time.Minute

// maxStaleness is the age that an answer may have: a replica that does not follow the store any more leaves
// HAProxy within that time.
const maxStaleness = 5 * time.Second

// drillResult is what a drill found.
type drillResult struct {
	Name    string   `json:"name"`
	Strikes int      `json:"strikes"`
	Planned int      `json:"strikes_planned"`
	Twice   []string `json:"running_twice"` // instances that had two running VMs at some moment
	fault.Verdict
	Seconds    float64 `json:"seconds"`
	Unmeasured string  `json:"unmeasured,omitempty"`
}

// run strikes and checks.
func (d *drill) run(ctx context.Context) (r drillResult) {
	began := time.Now()
	r = drillResult{Name: d.kind.name + " of a " + d.part.name, Planned: d.count}
	d.rng = rand.New(rand.NewPCG(d.seed, uint64(len(r.Name)))) //nolint:gosec // a test that can be repeated
	if err := d.work(ctx, &r); err != nil {
		r.Unmeasured = err.Error()
	}
	r.Seconds = time.Since(began).Seconds()
	return r
}

func (d *drill) work(ctx context.Context, r *drillResult) error {
	d.load = d.startLoad(ctx, r.Name)
	watched := d.watchTwins(ctx)
	err := d.load.AwaitProgress(ctx, d.strikes.progress, d.strikes.recovery)
	for members := d.part.members(d.cloud); err == nil && r.Strikes < d.count; r.Strikes++ {
		if err = d.strike(ctx, d.kind, members[d.rng.IntN(len(members))]); err != nil {
			break
		}
	}
	d.load.Stop()
	r.Twice = watched()
	verdict, checkErr := d.load.Check(ctx)
	r.Verdict = verdict
	if err = errors.Join(err, checkErr); err != nil || r.failed() {
		err = errors.Join(err, d.load.WriteHistory(filepath.Join(d.cloud.dir, "history-"+r.Name+".jsonl")))
	}
	return err
}

// startLoad starts the clients.
func (d *drill) startLoad(ctx context.Context, name string) *fault.Workload {
	return fault.StartWorkload(ctx, fault.WorkloadOptions{
		Name: name, Address: d.cloud.proxy.ready, Template: d.cloud.template, Workers: 5, KeptInstances: 4,
		MaxLife: 3 * time.Second, Pause: 100 * time.Millisecond, Seed: d.seed, NodeDir: d.cloud.dir,
		Slots: nodeCount * slotsPerNode, CalmTime: calmTime, MaxStaleness: maxStaleness,
		AllowedErrors: d.part.errors, Out: io.Discard,
	})
}

// watchTwins looks for instances that run twice until the returned function is called.
func (d *drill) watchTwins(ctx context.Context) (stop func() []string) {
	ctx, cancel := context.WithCancel(ctx)
	seen := map[string]bool{}
	var watching sync.WaitGroup
	watching.Go(func() {
		for rig.Pause(ctx, 250*time.Millisecond) {
			twice, err := d.load.RunningTwice()
			if err != nil {
				continue // a file that is being written
			}
			for _, id := range twice {
				seen[id] = true
			}
		}
	})
	return func() (all []string) {
		cancel()
		watching.Wait()
		for id := range seen {
			all = append(all, id)
		}
		return all
	}
}

// failed reports whether a promise was broken.
func (r drillResult) failed() bool {
	return r.Lost > 0 || r.Orphans > 0 || r.Stuck > 0 || r.Wrong > 0 || len(r.Twice) > 0
}

// verdict returns the required case of a drill.
func (r drillResult) verdict() verdict {
	detail := fmt.Sprintf("%d of %d strikes, %d acknowledged, lost %d, double %d, orphans %d, stuck %d, wrong %d, "+
		"errors %d (%.0f s)", r.Strikes, r.Planned, r.Acknowledged, r.Lost, len(r.Twice), r.Orphans, r.Stuck, r.Wrong,
		r.Errors, r.Seconds)
	if r.Unmeasured != "" {
		return verdict{r.Name, false, detail + ": " + r.Unmeasured}
	}
	return verdict{r.Name, !r.failed() && r.Strikes == r.Planned && r.Acknowledged > 0, detail}
}

// verdict is the outcome of a required case.
type verdict struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	Detail string `json:"detail"`
}
