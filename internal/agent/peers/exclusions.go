package peers

import (
	"slices"
	"sync"
	"time"
)

// ExclusionTime is how long a peer that sent wrong bytes is not used.
const ExclusionTime = 10 * time.Minute

// maxExclusions bounds the peers that are remembered.
const maxExclusions = 64

// Exclusions are the peers that have sent wrong bytes. The zero value is ready, and nil has none.
type Exclusions struct {
	mu    sync.Mutex
	until map[string]time.Time // node ID -> when it may be used again
}

func (e *Exclusions) add(node string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.until == nil {
		e.until = map[string]time.Time{}
	}
	if len(e.until) < maxExclusions || !e.until[node].IsZero() {
		e.until[node] = now.Add(ExclusionTime)
	}
}

// Has reports whether a peer is excluded.
func (e *Exclusions) Has(node string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	until, ok := e.until[node]
	if ok && !now.Before(until) {
		delete(e.until, node)
		return false
	}
	return ok
}

// List returns the excluded peers.
func (e *Exclusions) List(now time.Time) (ids []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, until := range e.until {
		if now.Before(until) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
