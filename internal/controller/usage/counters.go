package usage

import (
	"maps"
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
	db       record.DB
	observer observer

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

	onNode         map[string]nodeCount // node id -> its instances; none without
	waitingByGroup map[string]int       // group id -> its pending instances; none without
}

// observer learns what happens to instances. Its methods are called while the lock of the counters is held.
type observer interface {
	placed(inst *farm.Instance, waited time.Duration)
	started(inst *farm.Instance, took time.Duration)
	failed(inst *farm.Instance)
	// runs is called with each instance that enters the state Started (1) or leaves it (-1).
	runs(who subject, change int)
}

// subject is what the numbers of an instance belong to.
type subject struct {
	node, group, owner, template, templateName string
}

// nodeCount is the number of instances on a node.
type nodeCount struct {
	running, slots int
}

// countedInstance is the state of an instance that counters has counted.
type countedInstance struct {
	state           farm.InstanceState
	slot, waits     bool
	placed, started bool
	who             subject
}

// countedOf returns the state of an instance to count.
func countedOf(inst *farm.Instance) countedInstance {
	if inst.IsStandby() { // it uses a slot, and nothing else of it counts before a start claims it
		return countedInstance{
			state: farm.InstanceRemoved, slot: inst.UsesCapacity(), who: subject{node: inst.NodeID},
		}
	}
	return countedInstance{
		state: inst.State, slot: inst.UsesCapacity(), waits: inst.AwaitsPlacement(),
		placed: !inst.Placed.IsZero(), started: !inst.Started.IsZero(),
		who: subject{inst.NodeID, inst.GroupID, inst.Owner, inst.Template.ID, inst.Template.Name},
	}
}

func newCounters(db record.DB, o observer) *counters {
	now := db.Now()
	return &counters{
		db: db, observer: o, queued: metric.NewHistogram(metric.Long), booted: metric.NewHistogram(metric.Long),
		placements: metric.NewWindow(now), starts: metric.NewWindow(now), failures: metric.NewWindow(now),
		ends: metric.NewWindow(now),
		seen: map[string]countedInstance{}, states: map[farm.InstanceState]int{}, waiting: map[string]time.Time{},
		onNode: map[string]nodeCount{}, waitingByGroup: map[string]int{},
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
		if inst == nil || !inst.IsStandby() {
			t.newsLocked(was, inst, now)
		}
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
		t.observer.placed(inst, waited)
	}
	if !was.started && !inst.Started.IsZero() {
		t.started.Inc()
		t.booted.Observe(inst.Started.Sub(inst.Created))
		t.observer.started(inst, inst.Started.Sub(inst.Created))
		t.starts.Add(now, 0)
	}
	switch {
	case inst.State == was.state:
	case inst.State == farm.Errored:
		t.failed.Inc()
		t.failures.Add(now, 0)
		t.observer.failed(inst)
	case inst.State == farm.Terminated:
		t.ended.Inc()
		t.ends.Add(now, 0)
	}
}

// enterLocked changes the sums from one state of an instance to the next; nil: its record is removed.
func (t *counters) enterLocked(id string, was countedInstance, inst *farm.Instance) {
	var is countedInstance
	if inst != nil {
		is = countedOf(inst)
	}
	if was.state == farm.Started && (is.state != was.state || is.who != was.who) {
		t.observer.runs(was.who, -1)
	}
	if is.state == farm.Started && (is.state != was.state || is.who != was.who) {
		t.observer.runs(is.who, 1)
	}

	t.addLocked(was, -1)
	delete(t.waiting, id)
	if inst == nil {
		delete(t.seen, id)
		return
	}
	t.seen[id] = is
	t.addLocked(is, 1)
	if is.waits {
		t.waiting[id] = inst.Created
	}
}

// addLocked adds an instance to the sums, or with -1 removes it.
func (t *counters) addLocked(i countedInstance, change int) {
	if i.state != farm.InstanceRemoved {
		t.states[i.state] += change
	}
	if i.waits && i.who.group != "" {
		addCount(t.waitingByGroup, i.who.group, change)
	}
	n := t.onNode[i.who.node]
	if i.slot {
		t.slots += change
		n.slots += change
	}
	if i.state == farm.Started {
		n.running += change
	}
	if n == (nodeCount{}) {
		delete(t.onNode, i.who.node)
	} else {
		t.onNode[i.who.node] = n
	}
}

// addCount changes a count of a map, which has none that are 0.
func addCount(counts map[string]int, key string, change int) {
	if counts[key] += change; counts[key] == 0 {
		delete(counts, key)
	}
}

// parts returns the numbers of each node and the pending instances of each group.
func (t *counters) parts() (onNode map[string]nodeCount, waitingByGroup map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.onNode), maps.Clone(t.waitingByGroup)
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
