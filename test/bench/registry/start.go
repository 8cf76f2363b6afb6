package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/test/bench/runner"
)

// huge is the size of a disk that is too large to copy.
const huge = 64 << 40

// starts measures what lies between a cached disk and one that an instance can write
// to: an overlay, whose cost should not depend on the size of what is below it.
func (s *benchEnv) starts(ctx context.Context) error {
	var slowest time.Duration
	for _, bytes := range []int64{size, huge} {
		path := s.path("overlay")
		began := time.Now()
		err := qemu.CreateOverlay(ctx, path, bytes)
		took := time.Since(began)
		if err = errors.Join(err, os.Remove(path)); err != nil {
			return err
		}
		slowest = max(slowest, took)
	}
	s.b.Add(rowStart, runner.MS(slowest))
	return nil
}
