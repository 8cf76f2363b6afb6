// Package steadyclock is the time of day without jumps.
//
// A controller measures time limits across processes by the times in records. If the clock of its machine is set while
// it runs, a limit would end hours early or late. This clock continues with the time since the start of the machine,
// and approaches the machine's clock by a tenth of the elapsed time. It does not check the machine's clock: a process
// that starts with a wrong one has the wrong time.
//
// Invariant: during d the clock advances by at least 0.9 d and at most 1.1 d.
package steadyclock

import (
	"sync"
	"time"
)

// approach is the part of the elapsed time by which the clock may approach the machine's clock.
const approach = 10

// Clock may be used from many goroutines.
type Clock struct {
	read func() (wall time.Time, sinceBoot time.Duration)

	mu     sync.Mutex // guards the fields below
	now    time.Time  // of the last call, without a monotonic reading
	readAt time.Duration
}

// New returns a clock that begins with the time of the machine.
func New() *Clock { return newClock(new(machineClocks).read) }

func newClock(read func() (time.Time, time.Duration)) *Clock {
	wall, sinceBoot := read()
	return &Clock{read: read, now: wall, readAt: sinceBoot}
}

// Now returns the time in the machine's time zone.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, sinceBoot := c.read()
	elapsed := max(sinceBoot-c.readAt, 0)
	c.now, c.readAt = c.now.Add(elapsed), c.readAt+elapsed
	limit := elapsed / approach
	c.now = c.now.Add(min(max(wall.Sub(c.now), -limit), limit))
	return c.now
}

// bootPause is how long the monotonic clock, which stops while the machine sleeps, replaces the one since its start:
// reading that one is a system call, and a list of nodes asks for the time thousands of times.
const bootPause = time.Millisecond

// machineClocks reads both clocks of the machine. Its zero value is ready.
type machineClocks struct {
	at        time.Time     // of the last reading of the time since the start
	sinceBoot time.Duration // then
}

// read returns both clocks. The second one also counts while the machine sleeps, at the latest bootPause after it woke.
func (m *machineClocks) read() (wall time.Time, sinceBoot time.Duration) {
	now := time.Now()
	if since := now.Sub(m.at); since < 0 || since >= bootPause {
		m.at, m.sinceBoot = now, timeSinceBoot()
	}
	return now.Round(0), m.sinceBoot + now.Sub(m.at)
}
