package controller

import (
	"sync"
	"time"
)

// beat is the grid on which polls end that brought nothing. The polls of many nodes end
// side by side then, and wake an idle process a few times a second instead of once each:
// most of what an idle node costs is that waking.
const beat = 500 * time.Millisecond

// sharedTicker tells all that wait for the same moment of the grid with one timer. The clock of
// the wall may jump: the grid is that of the process.
type sharedTicker struct {
	begun time.Time

	mu   sync.Mutex // guards ends
	ends map[time.Duration]chan struct{}
}

func newBeats() *sharedTicker {
	return &sharedTicker{begun: time.Now(), ends: map[time.Duration]chan struct{}{}}
}

// after returns what is closed at the first moment of the grid that is not before wait
// has passed.
func (b *sharedTicker) after(wait time.Duration) <-chan struct{} {
	now := time.Since(b.begun)
	at := (now + wait + beat - 1).Truncate(beat)
	b.mu.Lock()
	defer b.mu.Unlock()
	end := b.ends[at]
	if end == nil {
		end = make(chan struct{})
		b.ends[at] = end
		time.AfterFunc(at-now, func() {
			b.mu.Lock()
			delete(b.ends, at)
			b.mu.Unlock()
			close(end)
		})
	}
	return end
}
