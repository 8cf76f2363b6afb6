package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// jobs is the normal load during an attack: instances that are started, used for a while and ended.
type jobs struct {
	by       *client.Controller
	template string
	group    string        // of nodes
	hold     time.Duration // how long an instance works

	mu     sync.Mutex // guards the fields below
	starts []time.Duration
	failed []error // calls that were refused or not answered
	lost   []error // instances that went wrong after they were acknowledged
}

// lookEvery is how often a job looks at its instance.
const lookEvery = 25 * time.Millisecond

// one is one job. It ends what it started also when ctx ends.
func (j *jobs) one(ctx context.Context) {
	began := time.Now()
	ids, err := j.by.Start(ctx, client.StartRequest{TemplateID: j.template, GroupID: j.group, ExternalID: "normal job"})
	if err != nil {
		if ctx.Err() == nil {
			j.fail(fmt.Errorf("create: %w", err))
		}
		return
	}
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	id := ids[0]
	if err := j.until(life, id, "Started"); err != nil {
		j.lose(fmt.Errorf("%s was not started after %s: %w", id, time.Since(began).Round(time.Millisecond), err))
	} else {
		j.started(time.Since(began))
		rig.Pause(ctx, j.hold)
		if err := j.until(life, id, "Started"); err != nil {
			j.lose(fmt.Errorf("%s while it worked: %w", id, err))
		}
	}
	j.terminate(life, id)
}

// until looks until an instance has a state. A refused look is a failed call, not a lost instance.
func (j *jobs) until(ctx context.Context, id, state string) error {
	for {
		inst, err := j.by.Instance(ctx, id)
		switch {
		case errors.Is(err, client.ErrNotFound):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("it is %s %s: %w", inst.InstanceState, inst.Message, ctx.Err())
		case err != nil:
			j.fail(fmt.Errorf("look: %w", err))
			rig.Pause(ctx, time.Second)
		case inst.InstanceState == state:
			return nil
		case inst.InstanceState != "Scheduling" && inst.InstanceState != "Pulling":
			return fmt.Errorf("it is %s: %s", inst.InstanceState, inst.Message)
		}
		rig.Pause(ctx, lookEvery)
	}
}

// terminate asks for the end of an instance until it is acknowledged, and waits until the instance is gone.
func (j *jobs) terminate(ctx context.Context, id string) {
	for {
		err := j.by.Terminate(ctx, id)
		if err == nil || errors.Is(err, client.ErrNotFound) {
			break
		}
		j.fail(fmt.Errorf("terminate: %w", err))
		if !rig.Pause(ctx, time.Second) {
			j.lose(fmt.Errorf("%s cannot be terminated", id))
			return
		}
	}
	for rig.Pause(ctx, lookEvery) {
		inst, err := j.by.Instance(ctx, id)
		if errors.Is(err, client.ErrNotFound) || err == nil && inst.InstanceState == "Terminated" {
			return
		}
	}
	j.lose(fmt.Errorf("%s does not end", id))
}

func (j *jobs) started(took time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.starts = append(j.starts, took)
}

func (j *jobs) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = append(j.failed, err)
}

func (j *jobs) lose(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost = append(j.lost, err)
}

// quantile returns the time within which a share of the starts was done.
func quantile(list []time.Duration, share float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

// bystander runs jobs while an attack lasts.
type bystander struct {
	*jobs
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// bystand begins jobs, two at a time.
func (s *site) bystand(ctx context.Context) *bystander {
	ctx, stop := context.WithCancel(ctx)
	b := &bystander{jobs: &jobs{by: s.other, template: s.a, group: s.builds, hold: 50 * time.Millisecond}, stop: stop}
	for range 2 {
		b.wg.Go(func() {
			for first := true; first || ctx.Err() == nil; first = false {
				b.one(ctx)
				rig.Pause(ctx, 100*time.Millisecond)
			}
		})
	}
	return b
}

// end ends the jobs and records their problems.
func (b *bystander) end(o *outcome) {
	for end := time.Now().Add(patience); time.Now().Before(end) && b.done() == 0; {
		time.Sleep(lookEvery) // an attack may be shorter than a job
	}
	b.stop()
	b.wg.Wait()
	if len(b.starts) == 0 {
		o.fault("no job of others was started since then")
	}
	for _, err := range slices.Concat(b.failed, b.lost) {
		o.fault("a job of others: %v", err)
	}
	o.effect("%d jobs, start p50 %s, longest %s, %d failed", len(b.starts),
		quantile(b.starts, 0.5).Round(time.Millisecond),
		quantile(b.starts, 1).Round(time.Millisecond), len(b.failed)+len(b.lost))
}

// done returns how many jobs were started or went wrong.
func (j *jobs) done() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.starts) + len(j.failed) + len(j.lost)
}
