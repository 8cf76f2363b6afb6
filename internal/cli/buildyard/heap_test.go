package buildyard

import (
	"context"
	"runtime"
	"testing"
	"time"
)

func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 100, 1: 100, 64 << 20: 100, 96 << 20: 100, 160 << 20: 60, 240 << 20: 40, 8 << 30: 40,
	} {
		if got := growth(live); got != want {
			t.Errorf("%d MB may grow by %d %%, want %d %%", live>>20, got, want)
		}
	}
	for live, want := range map[uint64]int{
		0: 25600, 32 << 20: 800, 256 << 20: 100, 640 << 20: 40, 8 << 30: 40,
	} {
		if got := stormGrowth(live); got != want {
			t.Errorf("%d MB may grow by %d %% in a storm, want %d %%", live>>20, got, want)
		}
	}
	for _, c := range []struct {
		set   int
		live  uint64
		since time.Duration
		want  int
	}{
		{100, 32 << 20, stormy - 1, 800}, {800, 256 << 20, stormy - 1, 100}, // a storm
		{100, 32 << 20, stormy, 100},    // none
		{25600, 256 << 20, stormy, 100}, // the storm was of a small heap
		{800, 32 << 20, stormy, 800},
	} {
		if got := nextGrowth(c.set, c.live, c.since); got != c.want {
			t.Errorf("%d MB may grow by %d %% %s after a collection at %d %%, want %d %%", c.live>>20, got, c.since, c.set, c.want)
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
