package usage

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of the tally.
const (
	// maxTallyKeys bounds the groups, owners and templates of the current step; what is beyond counts as other.
	maxTallyKeys = 1000
	// keptTallyKeys are those that a step keeps: the ones with the most usage. The rest is merged into other.
	keptTallyKeys = 100
	// maxSettled is the longest time between two settlements that counts: a clock that jumps adds no usage.
	maxSettled = time.Minute
)

// dimensions are what usage is counted by.
var dimensions = []string{api.ByGroup, api.ByOwner, api.ByTemplate}

// tally counts the usage by group, owner and template: in steps of an hour for a day, and of 6 hours for
// a week. Every replica has one; the leader stores it.
type tally struct {
	db record.DB

	mu      sync.Mutex // guards the fields below
	rings   []tallyRing
	running map[tallyKey]*runningCount // those with an instance in Started
	kept    time.Time                  // up to when it is recorded
	tried   time.Time                  // when that was last tried
}

// tallyKey is a group, an owner or a template.
type tallyKey struct {
	by    string // api.ByGroup, ...
	key   string
	other bool // it sums up those with little usage
}

// runningCount is the number of instances in Started since a time.
type runningCount struct {
	n     int
	since time.Time
	name  string
}

// tallyRing has the newest steps of one length.
type tallyRing struct {
	step  time.Duration
	size  int64 // steps at most
	steps map[int64]*tallyStep
}

// tallyStep is the usage in one step.
type tallyStep struct {
	samples int // settlements: how much of the step was counted
	changed time.Time
	rows    map[tallyKey]*tallyRow
	keys    map[string]int // dimension -> number of its rows
}

func newTallyStep() *tallyStep {
	return &tallyStep{rows: map[tallyKey]*tallyRow{}, keys: map[string]int{}}
}

// tallyRow is the usage of one group, owner or template.
type tallyRow struct {
	name             string
	seconds          float64 // in Started, summed over the instances
	starts, failures int
	queued, started  classTimes
}

// add adds another row.
func (r *tallyRow) add(o *tallyRow) {
	r.name = cmp.Or(o.name, r.name)
	r.seconds += o.seconds
	r.starts += o.starts
	r.failures += o.failures
	r.queued.merge(o.queued)
	r.started.merge(o.started)
}

// compareUsage orders rows by their usage, the largest first.
func compareUsage(a, b *tallyRow) int {
	return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(b.starts, a.starts),
		cmp.Compare(b.failures, a.failures))
}

// newTallyRings returns the rings, of which only step and size are set. The step after size is the one
// that has begun.
func newTallyRings() []tallyRing {
	return []tallyRing{{step: time.Hour, size: 25}, {step: 6 * time.Hour, size: 29}}
}

func newTally(db record.DB) *tally {
	now := db.Now()
	t := &tally{db: db, rings: newTallyRings(), running: map[tallyKey]*runningCount{}, kept: now, tried: now}
	for i := range t.rings {
		t.rings[i].steps = map[int64]*tallyStep{}
	}
	return t
}

func (r *tallyRing) number(t time.Time) int64 { return max(t.Unix(), 0) / int64(r.step/time.Second) }

// now returns the current step. When it begins, the older ones lose their smallest keys, and the oldest
// ones are removed.
func (r *tallyRing) now(t time.Time) *tallyStep {
	at := r.number(t)
	if s := r.steps[at]; s != nil {
		return s
	}
	for n, s := range r.steps {
		if n <= at-r.size || n > at {
			delete(r.steps, n)
		} else {
			s.shrink()
		}
	}
	s := newTallyStep()
	r.steps[at] = s
	return s
}

// row returns the row of a key. A new key beyond the limit is counted as other.
func (s *tallyStep) row(k tallyKey, name string) *tallyRow {
	r := s.rows[k]
	if r == nil && s.keys[k.by] >= maxTallyKeys {
		k, name = tallyKey{by: k.by, other: true}, ""
		r = s.rows[k]
	}
	if r == nil {
		r = &tallyRow{}
		s.rows[k] = r
		s.keys[k.by]++
	}
	r.name = cmp.Or(name, r.name)
	return r
}

// shrink merges the keys with the least usage into other.
func (s *tallyStep) shrink() {
	for _, by := range dimensions {
		shrinkRows(s.rows, by, keptTallyKeys)
		s.keys[by] = min(s.keys[by], keptTallyKeys+1)
	}
}

// shrinkRows merges the rows of a dimension beyond a number into other.
func shrinkRows(rows map[tallyKey]*tallyRow, by string, most int) {
	keys := sortedKeys(rows, by)
	if len(keys) <= most {
		return
	}
	other := tallyKey{by: by, other: true}
	sum := rows[other]
	if sum == nil {
		sum = &tallyRow{}
		rows[other] = sum
	}
	for _, k := range keys[most:] {
		sum.add(rows[k])
		delete(rows, k)
	}
	sum.name = ""
}

// sortedKeys returns the keys of a dimension without other, those with the most usage first.
func sortedKeys(rows map[tallyKey]*tallyRow, by string) (keys []tallyKey) {
	for k := range rows {
		if k.by == by && !k.other {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b tallyKey) int {
		return cmp.Or(compareUsage(rows[a], rows[b]), cmp.Compare(a.key, b.key))
	})
	return keys
}

// namedKey is a key and the name that clients see.
type namedKey struct {
	tallyKey
	name string
}

// keysOf returns the keys that an instance counts for.
func keysOf(who subject) [3]namedKey {
	return [3]namedKey{
		{tallyKey{by: api.ByGroup, key: who.group}, ""},
		{tallyKey{by: api.ByOwner, key: who.owner}, who.owner},
		{tallyKey{by: api.ByTemplate, key: who.template}, who.templateName},
	}
}

// count applies do to the current rows of an instance.
func (t *tally) count(inst *farm.Instance, do func(*tallyRow)) {
	now := t.db.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keysOf(countedOf(inst).who) {
		t.rowsLocked(k.tallyKey, k.name, now, do)
	}
}

func (t *tally) rowsLocked(k tallyKey, name string, now time.Time, do func(*tallyRow)) {
	for i := range t.rings {
		s := t.rings[i].now(now)
		s.changed = now
		do(s.row(k, name))
	}
}

func (t *tally) placed(inst *farm.Instance, waited time.Duration) {
	t.count(inst, func(r *tallyRow) { r.queued.add(classOf(waited), 1) })
}

func (t *tally) started(inst *farm.Instance, took time.Duration) {
	t.count(inst, func(r *tallyRow) {
		r.starts++
		r.started.add(classOf(took), 1)
	})
}

func (t *tally) failed(inst *farm.Instance) { t.count(inst, func(r *tallyRow) { r.failures++ }) }

// runs counts an instance that enters the state Started, or leaves it.
func (t *tally) runs(who subject, change int) {
	now := t.db.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keysOf(who) {
		r := t.running[k.tallyKey]
		if r == nil {
			r = &runningCount{since: now, name: k.name}
			t.running[k.tallyKey] = r
		}
		t.settleLocked(k.tallyKey, r, now)
		if r.n += change; r.n == 0 {
			delete(t.running, k.tallyKey)
		}
	}
}

// settle counts the time of running instances up to now.
func (t *tally) settle() {
	now := t.db.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, r := range t.running {
		t.settleLocked(k, r, now)
	}
	for i := range t.rings {
		t.rings[i].now(now).samples++
	}
}

func (t *tally) settleLocked(k tallyKey, r *runningCount, now time.Time) {
	past := min(max(now.Sub(r.since), 0), maxSettled)
	r.since = now
	if seconds := past.Seconds() * float64(r.n); seconds > 0 {
		t.rowsLocked(k, r.name, now, func(row *tallyRow) { row.seconds += seconds })
	}
}
