package steadyclock

import (
	"testing"
	"time"
)

// machine is a machine whose clocks a test sets.
type machine struct {
	wall time.Time
	boot time.Duration
}

func (m *machine) read() (time.Time, time.Duration) { return m.wall, m.boot }

func (m *machine) pass(d time.Duration) {
	m.wall, m.boot = m.wall.Add(d), m.boot+d
}

// TestJump: the clock of a machine that is set, in either direction, is approached slowly and then followed exactly.
func TestJump(t *testing.T) {
	start := time.Date(2026, 11, 2, 3, 4, 5, 6, time.UTC)
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		m := &machine{wall: start, boot: time.Hour}
		c := newClock(m.read)
		m.pass(time.Second)
		if got := c.Now(); !got.Equal(start.Add(time.Second)) {
			t.Errorf("before the jump: %s", got)
		}
		m.wall = m.wall.Add(jump)
		for last, n := c.Now(), 0; n < 10*3600; n++ {
			m.pass(time.Second)
			now := c.Now()
			if d := now.Sub(last); d < 900*time.Millisecond || d > 1100*time.Millisecond {
				t.Fatalf("%s in a second, %d s after a jump of %s", d, n, jump)
			}
			last = now
		}
		m.pass(time.Minute)
		if got := c.Now(); !got.Equal(m.wall) {
			t.Errorf("ten hours after a jump of %s it is %s, not %s", jump, got, m.wall)
		}
	}
}

// TestBackwards: the clock never goes backwards, even if both clocks of the machine do.
func TestBackwards(t *testing.T) {
	m := &machine{wall: time.Unix(1e9, 0), boot: time.Hour}
	c := newClock(m.read)
	first := c.Now()
	m.pass(-time.Minute)
	if got := c.Now(); got.Before(first) {
		t.Errorf("%s after %s", got, first)
	}
}

// TestMachine: the real clocks advance.
func TestMachine(t *testing.T) {
	c := New()
	first, boot := c.Now(), timeSinceBoot()
	if d := time.Since(first); d < -time.Minute || d > time.Minute {
		t.Errorf("%s from the clock of the machine", d)
	}
	for end := time.Now().Add(10 * time.Second); !c.Now().After(first) || timeSinceBoot() <= boot; {
		if time.Now().After(end) {
			t.Fatal("it stands")
		}
	}
}

// TestTimeSinceStart: between two readings of the time since the start of the machine, it is the same one as if it had
// been read.
func TestTimeSinceStart(t *testing.T) {
	var m machineClocks
	for range 100_000 {
		before := timeSinceBoot()
		_, got := m.read()
		if after := timeSinceBoot(); got < before-bootPause || got > after+bootPause {
			t.Fatalf("%s, but the machine says from %s to %s", got, before, after)
		}
	}
}

func BenchmarkNow(b *testing.B) {
	c := New()
	for b.Loop() {
		c.Now()
	}
}
