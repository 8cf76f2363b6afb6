package host

import (
	"time"
)

// Limits on the cost of changes: a burst is read immediately, as an installation writes one; an
// endless storm of files gets a part of one core.
const (
	throttleBurst   = 1500 * time.Millisecond
	throttleShare   = 0.12
	throttleMaxRest = 8 * time.Second // that the next changes wait
)

// throttle decides when a worker rests, and for how long. It counts the processor time of the whole
// process, because receiving the events of a storm costs time, too. One goroutine uses it.
type throttle struct {
	debt          time.Duration // processor time beyond the part
	lastCPUTime   time.Duration // by this process at the last check
	lastCheck     time.Time
	fullScanCount uint64 // full scans until then: they are not counted
}

// restTime adds the time the process has used until now, and returns how long the worker rests.
func (p *throttle) restTime(now time.Time, used time.Duration, scan uint64) time.Duration {
	if p.lastCheck.IsZero() || p.fullScanCount != scan {
		p.debt = 0
	} else {
		p.debt += used - p.lastCPUTime - shareOf(now.Sub(p.lastCheck))
	}
	most := throttleBurst + shareOf(throttleMaxRest)
	p.debt = min(max(p.debt, 0), most)
	p.lastCheck, p.lastCPUTime, p.fullScanCount = now, used, scan
	if p.debt <= throttleBurst {
		return 0
	}
	return time.Duration(float64(p.debt-throttleBurst) / throttleShare)
}

func shareOf(d time.Duration) time.Duration { return time.Duration(float64(d) * throttleShare) }
