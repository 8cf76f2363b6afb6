package buildyard

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much the heap may grow between two collections, in per cent of what lives. A small
// heap doubles, which is what collecting costs least at; from about 128 MB on the room
// for garbage stays the same, since ten thousand parked polls make next to none; and it
// is never less than half, so that a large heap is not collected all the time.
const (
	growthMost  = 100
	growthLeast = 50
	growthRoom  = 128 << 20 // bytes
)

// heapEvery is how often the growth is looked at.
const heapEvery = 10 * time.Second

// growth gives the per cent for a heap and stacks of so many bytes.
func growth(live uint64) int {
	return int(min(max(100*growthRoom/max(live, 1), growthLeast), growthMost))
}

// tendHeap keeps the growth of the heap fitting until ctx ends. GOGC switches it off.
func tendHeap(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	tick := time.NewTicker(heapEvery)
	defer tick.Stop()
	for set := growthMost; ; {
		if want := growth(liveBytes()); want != set {
			debug.SetGCPercent(want)
			set = want
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// liveBytes is what the last collection found alive.
func liveBytes() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}
