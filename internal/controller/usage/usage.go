package usage

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Options are what the numbers need of other parts.
type Options struct {
	Started time.Time // of this process
	// NodeLoad returns the load of a node's host, 0 to 1, as it was last reported; ok is false when the
	// report is too old to be one of now. nil: there are no reports.
	NodeLoad func(*farm.Node) (cpu, ram float64, ok bool)
}

// Usage has the numbers of one replica.
type Usage struct {
	db         record.DB
	opts       Options
	counters   *counters
	series     *series
	usageStats *usageStats
}

// New returns the numbers of a replica. They count nothing before Load.
func New(db record.DB, opts Options) *Usage {
	u := &Usage{db: db, opts: opts, series: newSeries(db, opts), usageStats: newUsageStats(db)}
	u.counters = newCounters(db, observers{u.series, u.usageStats})
	u.series.counters = u.counters
	return u
}

// observers passes what happens to instances on to the series and the usage statistics.
type observers struct {
	series     *series
	usageStats *usageStats
}

var _ observer = observers{}

func (o observers) placed(inst *farm.Instance, waited time.Duration) {
	o.usageStats.placed(inst, waited)
}

func (o observers) started(inst *farm.Instance, took time.Duration) {
	o.series.started(inst, took)
	o.usageStats.started(inst, took)
}

func (o observers) failed(inst *farm.Instance) {
	o.series.failed(inst)
	o.usageStats.failed(inst)
}

func (o observers) runs(who subject, change int) { o.usageStats.runs(who, change) }

// Load reads the existing records.
func (u *Usage) Load() {
	u.counters.load()
	u.series.load()
	u.usageStats.load()
}

// Observe follows the records.
func (u *Usage) Observe(events []store.Event) {
	u.counters.observe(events)
	u.series.observe(events)
	u.usageStats.observe(events)
}

// Now returns the numbers of instances at this moment.
func (u *Usage) Now() Snapshot { return u.counters.count(u.db.Now()) }

// Run takes samples periodically, until the context ends.
func (u *Usage) Run(ctx context.Context) { u.series.run(ctx, u.usageStats.settle) }

// StoreSeries records the new points of the series and the usage when StoreInterval has passed since the
// last time. Only the leader calls it.
func (u *Usage) StoreSeries(ctx context.Context, term *record.Term, now time.Time) error {
	if err := u.series.keep(ctx, term, now); err != nil {
		return err
	}
	return u.usageStats.keep(ctx, term, now)
}

// Pulled counts the bytes that a node which polls this replica has pulled.
func (u *Usage) Pulled(node string, bytes int64) { u.series.pulledHere(node, bytes) }

// PulledElsewhere counts the bytes that nodes of another replica have pulled.
func (u *Usage) PulledElsewhere(bytes int64) { u.series.pulledElsewhere(bytes) }

// NodePulledElsewhere counts for a node, and for its groups, the bytes that it has pulled as another
// replica reports it. PulledElsewhere counts them for the cloud.
func (u *Usage) NodePulledElsewhere(node string, bytes int64) {
	u.series.nodePulledElsewhere(node, bytes)
}

// TotalPulled returns the bytes that the nodes of this replica have pulled since it started.
func (u *Usage) TotalPulled() int64 { return u.series.pulledTotal() }
