package runner

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// Wait is what Await waits for.
type Wait struct {
	What      string
	Limit     time.Duration
	Every     time.Duration
	Processes []*rig.Process // that must not end; nil ones are not started yet
}

// Await polls until done returns true. It fails when a process has ended.
func (w Wait) Await(ctx context.Context, done func() (bool, error)) error {
	deadline := time.Now().Add(w.Limit)
	for {
		ok, err := done()
		if err != nil || ok {
			return err
		}
		if err := Running(w.Processes...); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s for %s", w.Limit, w.What)
		}
		if !rig.Pause(ctx, w.Every) {
			return context.Cause(ctx)
		}
	}
}

// Running returns an error that names a process which has ended, with the last line of its log.
func Running(processes ...*rig.Process) error {
	for _, p := range processes {
		if p != nil && !p.Running() {
			tail := p.Tail()
			return fmt.Errorf("%s has ended; last line of its log: %s", p.Name,
				tail[strings.LastIndexByte(tail, '\n')+1:])
		}
	}
	return nil
}

// Share measures which part of one core processes use together over a time.
func Share(ctx context.Context, over time.Duration, pids ...int) (float64, error) {
	began := time.Now()
	before, err := total(pids)
	if err != nil {
		return 0, err
	}
	if !rig.Pause(ctx, over) {
		return 0, context.Cause(ctx)
	}
	after, err := total(pids)
	return float64(after-before) / float64(time.Since(began)), err
}

// total adds up processor times.
func total(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		t, err := rig.ProcessorTime(pid)
		if err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		sum += t
	}
	return sum, nil
}

// MS returns a duration in milliseconds.
func MS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
