package loadgen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Options define the load.
type Options struct {
	Template string // ID
	Tag      string // "": the newest version
	Group    string
	Profile  Profile
	Rate     float64       // started jobs per second, independent of the controller; 0: as fast as the callers can
	Callers  int           // maximum number of concurrent calls
	HoldTime time.Duration // an instance works for between half and one and a half of this
	Duration time.Duration // after which no job is started
	Seed     uint64        // of every choice
	RunID    string        // part of every external ID; distinguishes the instances of this run from others

	Progress func(Report) // called every few seconds; may be nil
}

// Limits of a run.
const (
	callTimeout      = 5 * time.Second // of one call: as short as the shortest of real clients
	cleanupTimeout   = 2 * time.Minute // for the cleanup
	maxCallers       = 10_000
	maxJobs          = 100_000 // concurrently
	maxRate          = 100_000
	progressInterval = 5 * time.Second
)

// ErrInvalidOptions is part of every error of invalid options.
var ErrInvalidOptions = errors.New("invalid options")

func (o *Options) validate() error {
	switch {
	case o.Template == "":
		return errors.New("template required")
	case o.Callers < 1 || o.Callers > maxCallers:
		return fmt.Errorf("%d concurrent callers: want 1 to %d", o.Callers, maxCallers)
	case o.Rate < 0 || o.Rate > maxRate:
		return fmt.Errorf("invalid rate %g: want 0 to %d per second", o.Rate, maxRate)
	case o.Duration <= 0 || o.HoldTime < 0:
		return errors.New("the duration must be positive, and the run time of instances must not be negative")
	case o.Profile.PollInterval <= 0 || o.Profile.TerminateCalls < 1:
		return errors.New("profile required")
	}
	return nil
}

// runner is one run.
type runner struct {
	Options
	client  *Client
	results *results
	calls   chan struct{} // has a value for every call in flight
	jobs    sync.WaitGroup

	mu            sync.Mutex // guards the field below
	openInstances map[string]bool
}

// Run generates load until its time is over or ctx ends, then terminates what it started. The error
// is about options, or about instances that are left; the report is valid also with an error.
func Run(ctx context.Context, c *Client, o Options) (Report, error) {
	if err := o.validate(); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrInvalidOptions, err)
	}
	r := &runner{
		Options: o, client: c.withContentType(o.Profile.ContentType), results: newResults(o.Profile.Name),
		calls: make(chan struct{}, o.Callers), openInstances: map[string]bool{},
	}
	began := time.Now()
	working, stop := context.WithTimeout(ctx, o.Duration)
	defer stop()
	watched := r.reportProgress(working, began)
	r.startJobs(working, ctx)
	offered := time.Since(began)
	<-watched
	r.jobs.Wait()
	report := r.results.snapshot(offered)
	clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	left, err := r.cleanUp(clearing)
	whole := r.results.snapshot(offered)
	report.Remaining, report.Terminated, report.Errors = left, whole.Terminated, whole.Errors
	if left > 0 {
		err = errors.Join(fmt.Errorf("%d instances of this run were not terminated", left), err)
	}
	return report, err
}

// reportProgress calls Progress until ctx ends; the channel is closed then.
func (r *runner) reportProgress(ctx context.Context, began time.Time) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, progressInterval) {
			if r.Progress != nil {
				r.Progress(r.results.snapshot(time.Since(began)))
			}
		}
	}()
	return done
}

// startJobs starts jobs until due ends: at the rate, or by each caller in turn. Afterwards jobs no
// longer wait for a start; those that are Started continue until life ends.
func (r *runner) startJobs(due, life context.Context) {
	if r.Rate == 0 {
		for i := range r.Callers {
			r.jobs.Go(func() {
				for n := i; due.Err() == nil; n += r.Callers {
					r.results.update(func(p *Report) { p.Offered++ })
					r.runJob(due, life, n)
				}
			})
		}
		<-due.Done()
		return
	}
	began, alive := time.Now(), make(chan struct{}, maxJobs)
	for n := 0; ; n++ {
		at := began.Add(time.Duration(float64(n) / r.Rate * float64(time.Second)))
		if !sleep(due, time.Until(at)) {
			return
		}
		r.results.update(func(p *Report) { p.Offered++ })
		select {
		case alive <- struct{}{}:
			r.jobs.Go(func() {
				r.runJob(due, life, n)
				<-alive
			})
		default:
			r.results.update(func(p *Report) { p.Late++ })
		}
	}
}

// sleep waits for d, and reports whether the context is still active.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// call makes one call when a caller is free, and measures it.
func (r *runner) call(ctx context.Context, op Op, do func(context.Context) error) error {
	select {
	case r.calls <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.calls }()
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	err := do(limited)
	if ctx.Err() == nil {
		r.results.record(op, time.Since(began), err)
	}
	return err
}

// startupScript is the startup script of instances that are started with one.
const startupScript = "sleep 0.1\necho ready\n"

// createBody returns the body of the n-th create.
func (r *runner) createBody(n int) ([]byte, string, error) {
	o := CreateRequest{Template: r.Template, Tag: r.Tag, Group: r.Group, ExternalID: fmt.Sprintf("%s%d",
		r.externalIDPrefix(), n)}
	if r.Profile.SetsLabels {
		o.Name, o.Metadata = fmt.Sprintf("%s-%d", r.Profile.Name, n),
			map[string]string{"job": o.ExternalID, "branch": "main"}
	}
	if r.Profile.UsesScript {
		o.Script, o.Monitoring = []byte(startupScript), true
	}
	body, err := json.Marshal(o)
	if r.Profile.TrailingNewline {
		body = append(body, '\n')
	}
	return body, o.ExternalID, err
}

// externalIDPrefix begins the external IDs of this run: the address of a job, in the form that plugins use.
func (r *runner) externalIDPrefix() string {
	return "http://" + r.Profile.Name + ".load/" + r.RunID + "/"
}

// rng returns the random numbers of the n-th job.
func (r *runner) rng(n int) *rand.Rand {
	return rand.New(rand.NewPCG(r.Seed, uint64(n))) //nolint:gosec // choices that can be repeated, not secrets
}
