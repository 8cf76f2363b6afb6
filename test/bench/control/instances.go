package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/internal/loadgen"
	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// rest is the pause between two measurements.
const rest = 500 * time.Millisecond

// started returns whether at least n instances are Started. A failed one counts too, so that a wait
// ends: whole reports whether there are any.
func started(n int) func(counts) bool {
	return func(c counts) bool { return c.started+c.failed >= n }
}

// instances measures what is about instances on a fleet, each row after the one before.
func (b *bench) instances(ctx context.Context, s *stage) (err error) {
	o, err := observe(ctx, s.client)
	if err != nil {
		return err
	}
	defer func() { o.close() }()
	if err := b.wholeRequests(ctx, s, o); err != nil {
		return err
	}
	if err := b.oneByOne(ctx, s, o); err != nil {
		return err
	}
	if err := b.listed(ctx, s, o, rowList1000, wholeRequest); err != nil {
		return err
	}
	if err := b.bursts(ctx, s, o); err != nil {
		return err
	}
	if err := b.listed(ctx, s, o, rowList10000, before+growth); err != nil {
		return err
	}
	return b.running(ctx, s, o)
}

// calm ends every instance and waits until the cloud is idle.
func (s *stage) calm(ctx context.Context, o *observer) error {
	if err := o.whole(); err != nil {
		return err
	}
	gone := o.when(func(c counts) bool { return c.all == 0 })
	if err := s.terminate(ctx, o.ids()); err != nil {
		return err
	}
	if _, err := o.reached(ctx, "the end of all instances", gone); err != nil {
		return err
	}
	return pause(ctx, rest)
}

func pause(ctx context.Context, d time.Duration) error {
	if !rig.Pause(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// wholeRequests measures requests for many instances. The first one, in which the nodes
// pull the template, is not counted.
func (b *bench) wholeRequests(ctx context.Context, s *stage, o *observer) error {
	for i := range rounds + 1 {
		placed := o.when(func(c counts) bool { return c.placed+c.failed >= wholeRequest })
		all := o.when(started(wholeRequest))
		began := time.Now()
		if _, err := s.create(ctx, wholeRequest); err != nil {
			return err
		}
		answered := time.Since(began)
		placedAt, err := o.reached(ctx, "all instances to be placed", placed)
		if err != nil {
			return err
		}
		startedAt, err := o.reached(ctx, "all instances to start", all)
		if err != nil {
			return err
		}
		b.Say("count=%d: answered after %.0f ms, placed after %.0f, Started after %.0f", wholeRequest,
			runner.MS(answered), runner.MS(placedAt.Sub(began)), runner.MS(startedAt.Sub(began)))
		if i > 0 {
			b.Add(rowPlaced, placedAt.Sub(began).Seconds())
			b.Add(rowStarted, startedAt.Sub(began).Seconds())
		}
		if err := s.calm(ctx, o); err != nil {
			return err
		}
		if !b.Wants(rowPlaced, rowStarted) {
			return nil
		}
	}
	return nil
}

// oneByOne measures single starts, one after the other.
func (b *bench) oneByOne(ctx context.Context, s *stage, o *observer) error {
	if !b.Wants(rowLatency50, rowLatency99) {
		return nil
	}
	var took []float64
	for i := range latencies {
		at := o.when(started(i + 1))
		began := time.Now()
		if _, err := s.create(ctx, 1); err != nil {
			return err
		}
		end, err := o.reached(ctx, "the instance to start", at)
		if err != nil {
			return err
		}
		took = append(took, runner.MS(end.Sub(began)))
		b.Add(rowLatency50, took[i])
		b.Add(rowLatency99, took[i])
	}
	b.Say("%d starts one by one: p50 %.2f ms, p99 %.2f ms", latencies, row.Quantile(took, 0.5),
		row.Quantile(took, 0.99))
	return s.calm(ctx, o)
}

// bursts measures how fast a cloud fills: 2,000 from nothing, then up to 3,000, then
// 7,000 more. The last round stays for the rows that need it.
func (b *bench) bursts(ctx context.Context, s *stage, o *observer) error {
	grows := b.Wants(rowGrow, rowGrowRatio, rowList10000, rowRunning)
	if !grows && !b.Wants(rowBurst) {
		return nil
	}
	for i := range rounds {
		if err := s.calm(ctx, o); err != nil {
			return err
		}
		took, costs, err := s.burst(ctx, o, burst, burst)
		if err != nil {
			return err
		}
		b.Add(rowBurst, took.Seconds())
		b.Note(rowBurst, "last round: %s", costs)
		b.Say("round %d: %d Started after %.0f ms; %s", i+1, burst, runner.MS(took), costs)
		if !grows {
			continue
		}
		if err := b.grow(ctx, s, o, took); err != nil {
			return err
		}
	}
	return nil
}

// grow fills the cloud to 3,000 instances and then to 10,000; first is how long the
// 2,000 took.
func (b *bench) grow(ctx context.Context, s *stage, o *observer, first time.Duration) error {
	if _, _, err := s.burst(ctx, o, before-burst, before); err != nil {
		return err
	}
	if err := pause(ctx, rest); err != nil {
		return err
	}
	took, costs, err := s.burst(ctx, o, growth, before+growth)
	if err != nil {
		return err
	}
	b.Add(rowGrow, took.Seconds())
	b.Add(rowGrowRatio, growth/took.Seconds()/(burst/first.Seconds()))
	b.Note(rowGrow, "last round: %s", costs)
	b.Say("         %d more onto %d: Started after %.0f ms; %s", growth, before, runner.MS(took), costs)
	return nil
}

// burst makes single creates and returns the time after which total instances were Started, and
// what that cost.
func (s *stage) burst(
	ctx context.Context, o *observer, creates, total int,
) (took time.Duration, costs costs, err error) {
	at, body := o.when(started(total)), s.order(1)
	first, err := s.costs()
	if err != nil {
		return 0, costs, err
	}
	began := time.Now()
	err = spread(ctx, callers, creates, func(ctx context.Context, _ int) error {
		_, err := createWith(ctx, s.client, body)
		return err
	})
	if err != nil {
		return 0, costs, err
	}
	end, err := o.reached(ctx, fmt.Sprintf("%d instances to start", total), at)
	if err != nil {
		return 0, costs, err
	}
	last, err := s.costs()
	return end.Sub(began), last.less(first), errors.Join(err, o.whole())
}

// listed measures the list of n instances, which are made when they are not there.
func (b *bench) listed(ctx context.Context, s *stage, o *observer, name string, n int) error {
	if !b.Wants(name) {
		return nil
	}
	if n == wholeRequest {
		at := o.when(started(n))
		if _, err := s.create(ctx, n); err != nil {
			return err
		}
		if _, err := o.reached(ctx, "the instances to start", at); err != nil {
			return err
		}
	}
	if items, err := s.client.List(ctx); err != nil || len(items) != n {
		return errors.Join(err, fmt.Errorf("the list has %d instances, %d are there", len(items), n))
	}
	var took []float64
	size := 0
	for i := range lists {
		began := time.Now()
		raw, code, err := s.client.CallRaw(ctx, http.MethodGet, loadgen.InstancesPath, nil)
		if err != nil || code != http.StatusOK {
			return errors.Join(err, fmt.Errorf("list: HTTP %d", code))
		}
		took, size = append(took, runner.MS(time.Since(began))), len(raw)
		b.Add(name, took[i])
	}
	b.Note(name, "%.1f MB, p99 %.1f ms", float64(size)/(1<<20), row.Quantile(took, 0.99))
	b.Say("list of %d: p50 %.2f ms, p99 %.2f ms, %.1f MB", n, row.Quantile(took, 0.5), row.Quantile(took, 0.99),
		float64(size)/(1<<20))
	return nil
}

// running measures what idle instances cost, without requests about them.
func (b *bench) running(ctx context.Context, s *stage, o *observer) error {
	if !b.Wants(rowRunning) {
		return nil
	}
	u, err := s.rested(ctx, o)
	if err != nil {
		return err
	}
	b.Add(rowRunning, 100*u.cpu)
	b.Note(rowRunning, "%.0f MB", u.memory)
	b.Say("%d running: %.2f %% CPU, %.0f MB", before+growth, 100*u.cpu, u.memory)
	return nil
}

// runningMemory measures the memory of running instances, in a process that has had no others.
func (b *bench) runningMemory(ctx context.Context, s *stage) error {
	o, err := observe(ctx, s.client)
	if err != nil {
		return err
	}
	defer o.close()
	if _, _, err := s.burst(ctx, o, before+growth, before+growth); err != nil {
		return err
	}
	u, err := s.rested(ctx, o)
	if err != nil {
		return err
	}
	b.Add(rowRunningMB, u.memory)
	b.Say("running in a new process: %d", before+growth)
	return nil
}

// rested measures the server while it has no requests.
func (s *stage) rested(ctx context.Context, o *observer) (usage, error) {
	o.close()
	s.client.Close()
	if err := pause(ctx, settle); err != nil {
		return usage{}, err
	}
	return s.usage(ctx, idle)
}
