package controller

import (
	"sync"
	"time"
)

// logLimiter limits how often a frequent message is logged, and counts its occurrences since it was
// last logged. The zero value has logged nothing.
type logLimiter struct {
	mu    sync.Mutex
	last  time.Time
	count int
}

// due counts n occurrences, and reports whether to log now and for how many.
func (p *logLimiter) due(n int, now time.Time) (count int, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count += n
	if !p.last.IsZero() && now.Sub(p.last) < alarmEvery {
		return 0, false
	}
	count, p.last, p.count = p.count, now, 0
	return count, true
}
