package buildyard

import (
	"context"
	"runtime"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 100, 1: 100, 32 << 20: 100, 64 << 20: 100, 128 << 20: 50, 160 << 20: 40, 8 << 30: 40,
	} {
		if got := heapGrowthPercent(live); got != want {
			t.Errorf("%d MB may grow by %d %%, want %d %%", live>>20, got, want)
		}
	}
	for live, want := range map[uint64]int{
		0: 1600, 16 << 20: 100, 32 << 20: 50, 64 << 20: 25, 8 << 30: 25,
	} {
		if got := burstGrowthPercent(live, refusedRoom); got != want {
			t.Errorf("%d MB may grow by %d %% in a storm, want %d %%", live>>20, got, want)
		}
	}
	for _, c := range []struct {
		set   int
		live  uint64
		room  uint64
		since time.Duration
		want  int
	}{
		{100, 16 << 20, refusedRoom, stormy - 1, 100},
		{100, 64 << 20, refusedRoom, stormy - 1, 25}, // a storm
		{100, 32 << 20, stormRoom, stormy - 1, 800},
		{200, 64 << 20, stormRoom, stormy - 1, 400},
		{100, 16 << 20, refusedRoom, stormy, 100},
		{100, 32 << 20, stormRoom, stormy, 100}, // none
		{6400, 64 << 20, refusedRoom, stormy, 25},
		{6400, 64 << 20, stormRoom, stormy, 400}, // the storm was of a small heap
	} {
		if got := nextGrowthPercent(c.set, c.live, c.room, c.since); got != c.want {
			t.Errorf("%d MB may grow by %d %% %s after a collection at %d %% with %d MB of room, want %d %%",
				c.live>>20, got, c.since, c.set, c.room>>20, c.want)
		}
	}
	runtime.GC()
	if live := liveHeapBytes(); live < 1<<10 || live > 8<<30 {
		t.Errorf("%d bytes are said to live", live)
	}
}

// TestRefusalCount: a few refusals leave the heap its usual limit, many lower it for a while.
func TestRefusalCount(t *testing.T) {
	var r refusalCount
	now := time.Unix(1000, 0)
	for range 100 { // a client with a wrong password
		if now = now.Add(stormOver / 5); r.add(now) || r.headroom(now) != stormRoom {
			t.Fatal("few refusals count as many")
		}
	}
	now = now.Add(stormOver)
	for i := range 2 * often {
		if many := r.add(now); many != (i == often-1) {
			t.Errorf("after %d refusals: %t", i+1, many)
		}
	}
	for after, want := range map[time.Duration]uint64{0: refusedRoom, 2 * stormOver: refusedRoom, 2*stormOver +
		1: stormRoom} {
		if got := r.headroom(now.Add(after)); got != want {
			t.Errorf("%s after them there are %d MB of room", after, got>>20)
		}
	}
}

func TestAfterCollection(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	collected := make(chan struct{}, 1000)
	afterEachGC(ctx, func() { collected <- struct{}{} })
	for range 3 {
		runtime.GC()
		<-collected
	}
	cancel()
	runtime.GC()
	runtime.GC()
	if len(collected) > 0 {
		t.Error("told of a collection after the end")
	}
}
