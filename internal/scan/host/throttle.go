package host

import (
	"time"
)

// Limits on the cost of changes: a burst is read immediately, as an installation writes one; an
// endless storm of files gets a part of one core.
const (
	paceBurst = 1500 * time.Millisecond
	pacePart  = 0.12
	paceMost  = 8 * time.Second // that the next changes wait
)

// throttle decides when a worker rests, and for how long. It counts the processor time of the whole
// process, because receiving the events of a storm costs time, too. One goroutine uses it.
type throttle struct {
	debt time.Duration // processor time beyond the part
	used time.Duration // by this process at the last check
	at   time.Time
	scan uint64 // full scans until then: they are not counted
}

// rest adds the time the process has used until now, and returns how long the worker rests.
func (p *throttle) rest(now time.Time, used time.Duration, scan uint64) time.Duration {
	if p.at.IsZero() || p.scan != scan {
		p.debt = 0
	} else {
		p.debt += used - p.used - part(now.Sub(p.at))
	}
	most := paceBurst + part(paceMost)
	p.debt = min(max(p.debt, 0), most)
	p.at, p.used, p.scan = now, used, scan
	if p.debt <= paceBurst {
		return 0
	}
	return time.Duration(float64(p.debt-paceBurst) / pacePart)
}

func part(d time.Duration) time.Duration { return time.Duration(float64(d) * pacePart) }
