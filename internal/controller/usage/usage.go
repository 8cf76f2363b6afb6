package usage

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
)

// Usage has the numbers of one replica.
type Usage struct {
	db       record.DB
	started  time.Time
	counters *counters
	series   *series
}

// New returns the numbers of a replica that started at a time. They count nothing before Load.
func New(db record.DB, started time.Time) *Usage {
	u := &Usage{db: db, started: started, series: newSeries(db)}
	u.counters = newCounters(db, u.series.started)
	u.series.counts = u.Now
	return u
}

// Load reads the existing records.
func (u *Usage) Load() {
	u.counters.load()
	u.series.load()
}

// Observe follows the records.
func (u *Usage) Observe(events []store.Event) {
	u.counters.observe(events)
	u.series.observe(events)
}

// Now returns the numbers of instances at this moment.
func (u *Usage) Now() Snapshot { return u.counters.count(u.db.Now()) }

// Run takes samples periodically, until the context ends.
func (u *Usage) Run(ctx context.Context) { u.series.run(ctx) }

// StoreSeries records the new points of the series when StoreInterval has passed since the last
// time. Only the leader calls it.
func (u *Usage) StoreSeries(ctx context.Context, term *record.Term, now time.Time) error {
	return u.series.keep(ctx, term, now)
}

// Pulled counts the bytes that a node which polls this replica has pulled.
func (u *Usage) Pulled(bytes int64) { u.series.pulledHere(bytes) }

// PulledElsewhere counts the bytes that nodes of another replica have pulled.
func (u *Usage) PulledElsewhere(bytes int64) { u.series.pulled(bytes) }

// TotalPulled returns the bytes that the nodes of this replica have pulled since it started.
func (u *Usage) TotalPulled() int64 { return u.series.pulledTotal() }
