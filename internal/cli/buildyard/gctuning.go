package buildyard

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much the heap may grow between two collections, in percent of the live heap. A small heap
// doubles, which costs the least CPU; from about 64 MiB on the space for garbage is constant, since ten
// thousand waiting polls allocate almost nothing; and it is never less than 40 %, so that a large
// heap is not collected all the time.
const (
	growthMost  = 100
	growthLeast = 40
	growthRoom  = 64 << 20 // bytes
)

// A burst of requests would collect a small heap many times a second, which was a sixth of the cost of
// the burst. When two collections happen within stormy, the heap may grow by stormRoom between them,
// until none has happened for stormOver; then the memory is returned to the system, which would take
// minutes otherwise. While callers are rejected often, which legitimate bursts do not cause, the heap
// may grow by refusedRoom only, to bound the memory that hostile callers can consume (decision 35).
const (
	stormy       = 2 * time.Second
	stormRoom    = 256 << 20 // bytes
	refusedRoom  = 16 << 20  // bytes
	refusedLeast = 25        // percent
	stormOver    = 10 * time.Second
	heapEvery    = 5 * time.Second
	often        = 10 // refusals within stormOver
)

// heapGrowthPercent returns the percentage for a heap and stacks of so many bytes.
func heapGrowthPercent(live uint64) int {
	return int(min(max(100*growthRoom/max(live, 1), growthLeast), growthMost))
}

// burstGrowthPercent returns the growth while collections follow each other fast.
func burstGrowthPercent(live, room uint64) int {
	least := growthLeast
	if room <= refusedRoom {
		least = refusedLeast
	}
	return max(least, int(100*room/max(live, 1<<20)))
}

// nextGrowthPercent returns the growth in percent to set after a collection; since is the time since the
// previous one. A growth that was set while little memory was live would allow gigabytes of garbage
// when more is live: the headroom never exceeds that of a burst.
func nextGrowthPercent(set int, live, room uint64, since time.Duration) int {
	if since < stormy {
		return burstGrowthPercent(live, room)
	}
	return min(set, burstGrowthPercent(live, room))
}

// tuneGC adjusts the growth of the heap until ctx ends; refusals receives a value for each rejected
// caller, unless it is full. GOGC disables it.
func tuneGC(ctx context.Context, refusals <-chan struct{}) {
	if os.Getenv("GOGC") != "" {
		return
	}
	collected := make(chan struct{}, 1)
	afterEachGC(ctx, func() {
		select {
		case collected <- struct{}{}:
		default:
		}
	})
	calm := time.NewTicker(heapEvery)
	defer calm.Stop()
	set, last := growthMost, time.Time{}
	var refused refusalCount
	for {
		want := set
		select {
		case <-ctx.Done():
			return
		case <-collected:
			want = nextGrowthPercent(set, liveHeapBytes(), refused.headroom(time.Now()), time.Since(last))
			last = time.Now()
		case <-refusals:
			if refused.add(time.Now()) {
				want = min(set, burstGrowthPercent(liveHeapBytes(), refusedRoom))
			}
		case <-calm.C:
			if time.Since(last) >= stormOver {
				want = heapGrowthPercent(liveHeapBytes())
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

// refusalCount determines whether callers are rejected often.
type refusalCount struct {
	firstAt time.Time // time of the first counted refusal
	count   int
	manyAt  time.Time // last time of many refusals
}

// add counts a refusal, and reports whether there are many from now on.
func (r *refusalCount) add(now time.Time) bool {
	if now.Sub(r.firstAt) >= stormOver {
		r.firstAt, r.count = now, 0
	}
	if r.count++; r.count != often {
		return false
	}
	r.manyAt = now
	return true
}

// headroom returns the allowed heap growth in a burst of requests, in bytes.
func (r *refusalCount) headroom(now time.Time) uint64 {
	if now.Sub(r.manyAt) <= 2*stormOver { // the next count may be in progress
		return refusedRoom
	}
	return stormRoom
}

// afterEachGC calls do after every collection until ctx ends: each collection finds an object
// that nothing references.
func afterEachGC(ctx context.Context, do func()) {
	litter := new([32]byte) // too large to share its memory with others
	runtime.AddCleanup(litter, func(struct{}) {
		if ctx.Err() == nil {
			afterEachGC(ctx, do) // first: the next collection may be in progress
			do()
		}
	}, struct{}{})
}

// liveHeapBytes returns the live heap after the last collection.
func liveHeapBytes() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}
