package main

import (
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// share measures what part of one core the processes use together over a time.
func share(ctx context.Context, processes []rig.QEMU, over time.Duration) (float64, error) {
	began := time.Now()
	before, err := total(processes)
	if err != nil {
		return 0, err
	}
	if !rig.Pause(ctx, over) {
		return 0, context.Cause(ctx)
	}
	after, err := total(processes)
	return float64(after-before) / float64(time.Since(began)), err
}

// total adds up the processor times.
func total(processes []rig.QEMU) (sum time.Duration, err error) {
	for _, q := range processes {
		t, err := rig.ProcessorTime(q.PID)
		if err != nil {
			return 0, fmt.Errorf("processor time of the QEMU of instance %s: %w", q.UUID, err)
		}
		sum += t
	}
	return sum, nil
}
