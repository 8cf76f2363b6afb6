package main

import (
	"os"
	"testing"
	"time"
)

// TestClock: the exact time of a process is that which its ticks round.
func TestClock(t *testing.T) {
	before, err := clock(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
		_ = os.Getpid() // it works
	}
	exact, err := clock(os.Getpid())
	if err != nil || exact <= before {
		t.Fatal(before, exact, err)
	}
	own, children, err := ticks(os.Getpid())
	if d := exact - time.Duration(own-children)*tick; err != nil || d < -2*tick || d > 5*tick {
		t.Errorf("%s and %d ticks, %v", exact, own-children, err)
	}
	if _, err := clock(1 << 24); err == nil {
		t.Error("nobody has that process")
	}
}
