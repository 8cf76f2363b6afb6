package record

import (
	"sync"
	"time"
)

// LogInterval is the minimum time between two logs of the same message.
const LogInterval = time.Minute

// LogLimiter limits how often a frequent message is logged, and counts its occurrences since it was
// last logged. The zero value has logged nothing.
type LogLimiter struct {
	mu    sync.Mutex
	last  time.Time
	count int
}

// Due counts n occurrences, and reports whether to log now and for how many.
func (p *LogLimiter) Due(n int, now time.Time) (count int, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count += n
	if !p.last.IsZero() && now.Sub(p.last) < LogInterval {
		return 0, false
	}
	count, p.last, p.count = p.count, now, 0
	return count, true
}
