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
	Hold     time.Duration // an instance works for between half and one and a half of this
	Duration time.Duration // after which no job is started
	Seed     uint64        // of every choice
	Run      string        // part of every external ID; distinguishes the instances of this run from others

	Progress func(Report) // called every few seconds; may be nil
}

// Limits of a run.
const (
	callTime      = 5 * time.Second // of one call: as short as the shortest of real clients
	endTime       = 2 * time.Minute // for the cleanup
	maxCallers    = 10_000
	maxJobs       = 100_000 // concurrently
	maxRate       = 100_000
	progressEvery = 5 * time.Second
)

// ErrOptions is part of every error of invalid options.
var ErrOptions = errors.New("invalid options")

func (o *Options) check() error {
	switch {
	case o.Template == "":
		return errors.New("template required")
	case o.Callers < 1 || o.Callers > maxCallers:
		return fmt.Errorf("%d concurrent callers: want 1 to %d", o.Callers, maxCallers)
	case o.Rate < 0 || o.Rate > maxRate:
		return fmt.Errorf("invalid rate %g: want 0 to %d per second", o.Rate, maxRate)
	case o.Duration <= 0 || o.Hold < 0:
		return errors.New("the duration must be positive, and the run time of instances must not be negative")
	case o.Profile.Poll <= 0 || o.Profile.Ends < 1:
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

	mu   sync.Mutex // guards the field below
	open map[string]bool
}

// Run generates load until its time is over or ctx ends, then terminates what it started. The error
// is about options, or about instances that are left; the report is valid also with an error.
func Run(ctx context.Context, c *Client, o Options) (Report, error) {
	if err := o.check(); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	r := &runner{
		Options: o, client: c.as(o.Profile.ContentType), results: newResults(o.Profile.Name),
		calls: make(chan struct{}, o.Callers), open: map[string]bool{},
	}
	began := time.Now()
	working, stop := context.WithTimeout(ctx, o.Duration)
	defer stop()
	watched := r.watch(working, began)
	r.begin(working, ctx)
	offered := time.Since(began)
	<-watched
	r.jobs.Wait()
	report := r.results.snapshot(offered)
	clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	left, err := r.clear(clearing)
	whole := r.results.snapshot(offered)
	report.Left, report.Terminated, report.Errors = left, whole.Terminated, whole.Errors
	if left > 0 {
		err = errors.Join(fmt.Errorf("%d instances of this run were not terminated", left), err)
	}
	return report, err
}

// watch calls Progress until ctx ends; the channel is closed then.
func (r *runner) watch(ctx context.Context, began time.Time) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, progressEvery) {
			if r.Progress != nil {
				r.Progress(r.results.snapshot(time.Since(began)))
			}
		}
	}()
	return done
}

// begin starts jobs until due ends: at the rate, or by each caller in turn. Afterwards jobs no
// longer wait for a start; those that are Started continue until life ends.
func (r *runner) begin(due, life context.Context) {
	if r.Rate == 0 {
		for i := range r.Callers {
			r.jobs.Go(func() {
				for n := i; due.Err() == nil; n += r.Callers {
					r.results.count(func(p *Report) { p.Offered++ })
					r.job(due, life, n)
				}
			})
		}
		<-due.Done()
		return
	}
	began, alive := time.Now(), make(chan struct{}, maxJobs)
	for n := 0; ; n++ {
		at := began.Add(time.Duration(float64(n) / r.Rate * float64(time.Second)))
		if !pause(due, time.Until(at)) {
			return
		}
		r.results.count(func(p *Report) { p.Offered++ })
		select {
		case alive <- struct{}{}:
			r.jobs.Go(func() {
				r.job(due, life, n)
				<-alive
			})
		default:
			r.results.count(func(p *Report) { p.Late++ })
		}
	}
}

// pause waits for d, and reports whether the context is still active.
func pause(ctx context.Context, d time.Duration) bool {
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
	limited, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	began := time.Now()
	err := do(limited)
	if ctx.Err() == nil {
		r.results.took(op, time.Since(began), err)
	}
	return err
}

// script is the startup script of instances that are started with one.
const script = "sleep 0.1\necho ready\n"

// order returns the body of the n-th create.
func (r *runner) order(n int) ([]byte, string, error) {
	o := CreateRequest{Template: r.Template, Tag: r.Tag, Group: r.Group, ExternalID: fmt.Sprintf("%s%d", r.prefix(), n)}
	if r.Profile.Labels {
		o.Name, o.Metadata = fmt.Sprintf("%s-%d", r.Profile.Name, n),
			map[string]string{"job": o.ExternalID, "branch": "main"}
	}
	if r.Profile.Scripts {
		o.Script, o.Monitoring = []byte(script), true
	}
	body, err := json.Marshal(o)
	if r.Profile.Newline {
		body = append(body, '\n')
	}
	return body, o.ExternalID, err
}

// prefix begins the external IDs of this run: the address of a job, in the form that plugins use.
func (r *runner) prefix() string { return "http://" + r.Profile.Name + ".load/" + r.Run + "/" }

// rng returns the random numbers of the n-th job.
func (r *runner) rng(n int) *rand.Rand {
	return rand.New(rand.NewPCG(r.Seed, uint64(n))) //nolint:gosec // choices that can be repeated, not secrets
}
