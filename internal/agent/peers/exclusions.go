package peers

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/metric"
)

// ExclusionTime is how long a peer that sent wrong bytes is not used.
const ExclusionTime = 10 * time.Minute

// maxExclusions bounds the peers that are remembered. No more are used at a time by one pull.
const maxExclusions = 2 * maxPeers

// Exclusions are the peers that have sent wrong bytes. The zero value is ready.
type Exclusions struct {
	total metric.Counter

	mu    sync.Mutex
	until map[string]time.Time // node ID -> when it may be used again
}

// Note excludes peers that sent wrong bytes. Those that are excluded stay so no longer than before.
func (e *Exclusions) Note(now time.Time, nodes ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.until, func(_ string, until time.Time) bool { return !now.Before(until) })
	for _, id := range nodes {
		if _, known := e.until[id]; known || len(e.until) >= maxExclusions {
			continue
		}
		if e.until == nil {
			e.until = map[string]time.Time{}
		}
		e.until[id] = now.Add(ExclusionTime)
		e.total.Inc()
	}
}

// Has reports whether a peer is excluded.
func (e *Exclusions) Has(node string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Before(e.until[node])
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

// Families returns the metrics of exclusions.
func (e *Exclusions) Families() []metric.Family {
	return []metric.Family{
		metric.CounterFamily("buildyard_node_peer_exclusions_total",
			"Times that another node was excluded because it sent wrong bytes of a version", &e.total),
	}
}
