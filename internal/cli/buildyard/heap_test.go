package buildyard

import (
	"runtime"
	"testing"
)

func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 100, 1: 100, 64 << 20: 100, 128 << 20: 100, 160 << 20: 80, 256 << 20: 50, 8 << 30: 50,
	} {
		if got := growth(live); got != want {
			t.Errorf("%d MB may grow by %d %%, want %d %%", live>>20, got, want)
		}
	}
	runtime.GC()
	if live := liveBytes(); live < 1<<10 || live > 8<<30 {
		t.Errorf("%d bytes are said to live", live)
	}
}
