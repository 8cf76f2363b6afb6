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
		if got := growth(live); got != want {
			t.Errorf("%d MB may grow by %d %%, want %d %%", live>>20, got, want)
		}
	}
	for live, want := range map[uint64]int{
		0: 6400, 32 << 20: 200, 64 << 20: 100, 160 << 20: 40, 8 << 30: 40,
	} {
		if got := stormGrowth(live, refusedRoom); got != want {
			t.Errorf("%d MB may grow by %d %% in a storm, want %d %%", live>>20, got, want)
		}
	}
	const refused, old = stormOver - 1, stormOver
	for _, c := range []struct {
		set     int
		live    uint64
		refused time.Duration // since the last refusal
		since   time.Duration
		want    int
	}{
		{100, 32 << 20, refused, stormy - 1, 200},
		{200, 64 << 20, refused, stormy - 1, 100}, // a storm
		{100, 32 << 20, old, stormy - 1, 800},
		{200, 64 << 20, old, stormy - 1, 400},
		{800, 32 << 20, refused, stormy - 1, 200},
		{100, 32 << 20, refused, stormy, 100},
		{100, 32 << 20, old, stormy, 100}, // none
		{6400, 64 << 20, refused, stormy, 100},
		{6400, 64 << 20, old, stormy, 400}, // the storm was of a small heap
		{200, 32 << 20, refused, stormy, 200},
	} {
		if got := nextGrowth(c.set, c.live, roomAfter(c.refused), c.since); got != c.want {
			t.Errorf("%d MB may grow by %d %% %s after a collection at %d %%, %s after a refusal, want %d %%",
				c.live>>20, got, c.since, c.set, c.refused, c.want)
		}
	}
	runtime.GC()
	if live := liveBytes(); live < 1<<10 || live > 8<<30 {
		t.Errorf("%d bytes are said to live", live)
	}
}

func TestAfterCollection(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	collected := make(chan struct{}, 1000)
	afterCollection(ctx, func() { collected <- struct{}{} })
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
