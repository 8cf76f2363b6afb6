package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/bytesize"
)

// DiskFree returns the check of the free space at a directory. space returns the free and the total bytes; less than
// reserve bytes of free space fail.
func DiskFree(name, dir string, reserve int64, space func(dir string) (free, total int64, err error)) Check {
	return Check{name, func(context.Context) Finding {
		free, total, err := space(dir)
		if err != nil {
			return Finding{Warning, err.Error(), "run this as the user of the service"}
		}
		return evaluateDisk(dir, free, total, reserve)
	}}
}

// lowDiskBytes of free space are enough on a disk of any size.
const lowDiskBytes = 10 << 30

func evaluateDisk(dir string, free, total, reserve int64) Finding {
	text := fmt.Sprintf("%s of %s free at %s", bytesize.Format(free), bytesize.Format(total), dir)
	switch {
	case free < reserve || free < total/100:
		return Finding{Failed, text, "free space on this disk, or add a larger one"}
	case free < total/5 && free < lowDiskBytes:
		return Finding{Warning, text, "free space on this disk before writes are refused"}
	}
	return Finding{Outcome: OK, Detail: text}
}

const (
	latencyWrites  = 20
	latencyBytes   = 4 << 10
	latencyWarning = 50 * time.Millisecond
	latencyFailure = 500 * time.Millisecond
)

// WriteLatency returns the check how long synced writes of a directory's disk take. It writes a temporary file there,
// which it removes.
func WriteLatency(name, dir string) Check {
	return Check{name, func(ctx context.Context) Finding {
		times, err := syncedWrites(ctx, dir)
		if err != nil {
			return Finding{Warning, err.Error(), "run this as the user of the service"}
		}
		return evaluateLatency(times)
	}}
}

// syncedWrites returns the times of synced writes.
func syncedWrites(ctx context.Context, dir string) (times []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return nil, fmt.Errorf("create temporary file: %w", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	block := make([]byte, latencyBytes)
	for range latencyWrites {
		if ctx.Err() != nil {
			break
		}
		begun := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, fmt.Errorf("write temporary file: %w", err)
		}
		if err := f.Sync(); err != nil {
			return nil, fmt.Errorf("sync temporary file: %w", err)
		}
		times = append(times, time.Since(begun))
	}
	if len(times) == 0 {
		return nil, context.Cause(ctx)
	}
	return times, nil
}

// evaluateLatency evaluates the median of the times of synced writes.
func evaluateLatency(times []time.Duration) Finding {
	slices.Sort(times)
	median, slowest := times[len(times)/2], times[len(times)-1]
	text := fmt.Sprintf("a synced write takes %s (median), at most %s", median.Round(10*time.Microsecond),
		slowest.Round(10*time.Microsecond))
	switch {
	case median > latencyFailure:
		return Finding{
			Failed, text, "move the directory to a local SSD: each change of the cloud waits for such a write",
		}
	case median > latencyWarning:
		return Finding{Warning, text, "a local SSD makes each change of the cloud faster"}
	}
	return Finding{Outcome: OK, Detail: text}
}
