package usage

import (
	"time"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/store"
)

// counters counts the instances and their outcomes, event by event, so that no reader has to
// scan all of them for the utilization of the cloud. Every replica has one; events before it was
// opened are not in its sums.
type counters struct {
	db      record.DB
	onStart func(took time.Duration) // is called for each VM that starts

	queued, booted *metric.Histogram // from the request to a node, to the running VM
	placements     *metric.Window    // and how long each had waited
	starts         *metric.Window
	failures       *metric.Window
	ends           *metric.Window

	placed, started, failed, ended metric.Counter

	mu      lockorder.Mutex[lockorder.Counters] // guards the fields below
	loaded  bool
	seen    map[string]countedInstance // instance id
	states  map[farm.InstanceState]int
	slots   int                  // used on nodes
	waiting map[string]time.Time // instance id -> since when
}

// countedInstance is the state of an instance that counters has counted.
type countedInstance struct {
	state           farm.InstanceState
	slot            bool
	placed, started bool
}

func newCounters(db record.DB, started func(time.Duration)) *counters {
	now := db.Now()
	return &counters{
		db: db, onStart: started, queued: metric.NewHistogram(metric.Long), booted: metric.NewHistogram(metric.Long),
		placements: metric.NewWindow(now), starts: metric.NewWindow(now), failures: metric.NewWindow(now),
		ends: metric.NewWindow(now),
		seen: map[string]countedInstance{}, states: map[farm.InstanceState]int{}, waiting: map[string]time.Time{},
	}
}

// load reads the existing records, as states and not as events.
func (t *counters) load() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loaded = true
	for id, inst := range t.db.Tables.Instances.All() {
		t.enterLocked(id, countedInstance{}, inst)
	}
}

// observe follows the records. It reads them from the table, which is never behind the events: so
// an event that is seen twice counts one time, and events before load are included in its result.
func (t *counters) observe(events []store.Event) {
	now := t.db.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.loaded {
		return
	}
	for _, e := range events {
		if e.Kind != record.KindInstance {
			continue
		}
		was := t.seen[e.ID]
		inst, _, ok := t.db.Tables.Instances.Get(e.ID)
		if !ok {
			inst = nil
		}
		t.newsLocked(was, inst, now)
		t.enterLocked(e.ID, was, inst)
	}
}

// newsLocked counts what happened to an instance; nil: its record is removed.
func (t *counters) newsLocked(was countedInstance, inst *farm.Instance, now time.Time) {
	if inst == nil {
		if was.state == farm.Terminating { // an instance that never started just disappears
			t.ended.Inc()
			t.ends.Add(now, 0)
		}
		return
	}
	if !was.placed && !inst.Placed.IsZero() {
		waited := inst.Placed.Sub(inst.Created)
		t.placed.Inc()
		t.queued.Observe(waited)
		t.placements.Add(now, waited)
	}
	if !was.started && !inst.Started.IsZero() {
		t.started.Inc()
		t.booted.Observe(inst.Started.Sub(inst.Created))
		t.onStart(inst.Started.Sub(inst.Created))
		t.starts.Add(now, 0)
	}
	switch {
	case inst.State == was.state:
	case inst.State == farm.Errored:
		t.failed.Inc()
		t.failures.Add(now, 0)
	case inst.State == farm.Terminated:
		t.ended.Inc()
		t.ends.Add(now, 0)
	}
}

// enterLocked changes the sums from one state of an instance to the next.
func (t *counters) enterLocked(id string, was countedInstance, inst *farm.Instance) {
	if was.state != farm.InstanceRemoved {
		t.states[was.state]--
	}
	if was.slot {
		t.slots--
	}
	delete(t.waiting, id)
	if inst == nil {
		delete(t.seen, id)
		return
	}
	is := countedInstance{inst.State, inst.UsesCapacity(), !inst.Placed.IsZero(), !inst.Started.IsZero()}
	t.seen[id] = is
	t.states[is.state]++
	if is.slot {
		t.slots++
	}
	if inst.AwaitsPlacement() {
		t.waiting[id] = inst.Created
	}
}

// Snapshot is a copy of the statistics at one moment.
type Snapshot struct {
	States map[string]int // number of instances by state, with every state of the API
	Slots  int            // used on nodes
	Queue  int            // requests that wait for a node
	Oldest time.Duration  // that a request has waited
}

// count returns the sums. It reads the pending requests, and no other instance.
func (t *counters) count(now time.Time) Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := Snapshot{States: make(map[string]int, len(farm.InstanceStates)), Slots: t.slots, Queue: len(t.waiting)}
	for _, s := range farm.InstanceStates {
		out.States[string(s)] = t.states[s]
	}
	for _, since := range t.waiting {
		out.Oldest = max(out.Oldest, now.Sub(since))
	}
	return out
}
