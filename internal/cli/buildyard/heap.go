package buildyard

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much the heap may grow between two collections, in per cent of what lives. A small
// heap doubles, which is what collecting costs least at; from about 64 MB on the room
// for garbage stays the same, since ten thousand parked polls make next to none; and it
// is never less than two fifths, so that a large heap is not collected all the time.
const (
	growthMost  = 100
	growthLeast = 40
	growthRoom  = 64 << 20 // bytes
)

// A storm of requests would have a small heap collected many times a second, which was
// a sixth of what the storm costs. When two collections come within stormy, the heap
// gets stormRoom between them, until none has come for stormOver; then the memory goes
// back to the system, which would take minutes by itself. While callers are refused because
// they ask for too much it gets refusedRoom: a larger room would be memory that a hostile
// caller takes (docs/decisions/0148).
const (
	stormy      = 2 * time.Second
	stormRoom   = 256 << 20 // bytes
	refusedRoom = 64 << 20  // bytes
	stormOver   = 10 * time.Second
	heapEvery   = 5 * time.Second
)

// growth gives the per cent for a heap and stacks of so many bytes.
func growth(live uint64) int {
	return int(min(max(100*growthRoom/max(live, 1), growthLeast), growthMost))
}

// stormGrowth is growth while collections come fast.
func stormGrowth(live, room uint64) int {
	return max(growth(live), int(100*room/max(live, 1<<20)))
}

// nextGrowth gives the per cent after a collection, which comes so long after the one before. What was set when little
// lived would be gigabytes of garbage when more does: the room is never more than that of a storm.
func nextGrowth(set int, live, room uint64, since time.Duration) int {
	if since < stormy {
		return stormGrowth(live, room)
	}
	return min(set, stormGrowth(live, room))
}

// tendHeap keeps the growth of the heap fitting until ctx ends; refusals has a value after callers were refused because
// they ask for too much. GOGC switches it off.
func tendHeap(ctx context.Context, refusals <-chan struct{}) {
	if os.Getenv("GOGC") != "" {
		return
	}
	collected := make(chan struct{}, 1)
	afterCollection(ctx, func() {
		select {
		case collected <- struct{}{}:
		default:
		}
	})
	calm := time.NewTicker(heapEvery)
	defer calm.Stop()
	set, last, refused := growthMost, time.Time{}, time.Time{}
	for {
		want := set
		select {
		case <-ctx.Done():
			return
		case <-collected:
			want = nextGrowth(set, liveBytes(), roomAfter(time.Since(refused)), time.Since(last))
			last = time.Now()
		case <-refusals:
			if time.Since(refused) > stormy {
				want = min(set, stormGrowth(liveBytes(), refusedRoom))
				refused = time.Now()
			}
		case <-calm.C:
			if time.Since(last) >= stormOver {
				want = growth(liveBytes())
			}
		}
		if want == set {
			continue
		}
		debug.SetGCPercent(want)
		if set > growthMost && want <= growthMost {
			debug.FreeOSMemory()
		}
		set = want
	}
}

// roomAfter gives the room of a storm, so long after the last refusal.
func roomAfter(refused time.Duration) uint64 {
	if refused < stormOver {
		return refusedRoom
	}
	return stormRoom
}

// afterCollection calls do after every collection until ctx ends: an object that nobody
// needs is found by each.
func afterCollection(ctx context.Context, do func()) {
	litter := new([32]byte) // too large to share its memory with others
	runtime.AddCleanup(litter, func(struct{}) {
		if ctx.Err() == nil {
			afterCollection(ctx, do) // first: the next collection may be under way already
			do()
		}
	}, struct{}{})
}

// liveBytes is what the last collection found alive.
func liveBytes() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}
