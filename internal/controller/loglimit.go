package controller

import (
	"sync"
	"time"
)

// logLimiter lets something be said now and then that may happen all the time, with how often
// it has happened since it was last said. The zero value has said nothing.
type logLimiter struct {
	mu    sync.Mutex
	last  time.Time
	count int
}

// due counts n times, and says whether it is to be said now and for how many.
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
