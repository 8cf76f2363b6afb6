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

// Limits of the usage statistics.
const (
	// maxUsageKeys bounds the groups, owners and templates of the current step; what is beyond counts as other.
	maxUsageKeys = 1000
	// keptUsageKeys are those that a step keeps: the ones with the most usage. The rest is merged into other.
	keptUsageKeys = 100
	// maxSettled is the longest time between two settlements that counts: a clock that jumps adds no usage.
	maxSettled = time.Minute
)

// dimensions are what usage is counted by.
var dimensions = []string{api.ByGroup, api.ByOwner, api.ByTemplate}

// usageStats counts the usage by group, owner and template: in steps of an hour for a day, and of 6 hours for
// a week. Every replica has one; the leader stores it.
type usageStats struct {
	db record.DB

	mu      sync.Mutex // guards the fields below
	rings   []usageRing
	running map[usageKey]*runningCount // those with an instance in Started
	kept    time.Time                  // up to when it is recorded
	tried   time.Time                  // when that was last tried
}

// usageKey is a group, an owner or a template.
type usageKey struct {
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

// usageRing has the newest steps of one length.
type usageRing struct {
	step  time.Duration
	size  int64 // steps at most
	steps map[int64]*usageStep
}

// usageStep is the usage in one step.
type usageStep struct {
	samples int // settlements: how much of the step was counted
	changed time.Time
	rows    map[usageKey]*usageRow
	keys    map[string]int // dimension -> number of its rows
}

func newUsageStep() *usageStep {
	return &usageStep{rows: map[usageKey]*usageRow{}, keys: map[string]int{}}
}

// usageRow is the usage of one group, owner or template.
type usageRow struct {
	name             string
	seconds          float64 // in Started, summed over the instances
	starts, failures int
	queued, started  classTimes
}

// add adds another row.
func (r *usageRow) add(o *usageRow) {
	r.name = cmp.Or(o.name, r.name)
	r.seconds += o.seconds
	r.starts += o.starts
	r.failures += o.failures
	r.queued.merge(o.queued)
	r.started.merge(o.started)
}

// compareUsage orders rows by their usage, the largest first.
func compareUsage(a, b *usageRow) int {
	return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(b.starts, a.starts),
		cmp.Compare(b.failures, a.failures))
}

// newUsageRings returns the rings, of which only step and size are set. The step after size is the one
// that has begun.
func newUsageRings() []usageRing {
	return []usageRing{{step: time.Hour, size: 25}, {step: 6 * time.Hour, size: 29}}
}

func newUsageStats(db record.DB) *usageStats {
	now := db.Now()
	t := &usageStats{db: db, rings: newUsageRings(), running: map[usageKey]*runningCount{}, kept: now, tried: now}
	for i := range t.rings {
		t.rings[i].steps = map[int64]*usageStep{}
	}
	return t
}

func (r *usageRing) number(t time.Time) int64 { return max(t.Unix(), 0) / int64(r.step/time.Second) }

// now returns the current step. When it begins, the older ones lose their smallest keys, and the oldest
// ones are removed.
func (r *usageRing) now(t time.Time) *usageStep {
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
	s := newUsageStep()
	r.steps[at] = s
	return s
}

// row returns the row of a key. A new key beyond the limit is counted as other.
func (s *usageStep) row(k usageKey, name string) *usageRow {
	r := s.rows[k]
	if r == nil && s.keys[k.by] >= maxUsageKeys {
		k, name = usageKey{by: k.by, other: true}, ""
		r = s.rows[k]
	}
	if r == nil {
		r = &usageRow{}
		s.rows[k] = r
		s.keys[k.by]++
	}
	r.name = cmp.Or(name, r.name)
	return r
}

// shrink merges the keys with the least usage into other.
func (s *usageStep) shrink() {
	for _, by := range dimensions {
		shrinkRows(s.rows, by, keptUsageKeys)
		s.keys[by] = min(s.keys[by], keptUsageKeys+1)
	}
}

// shrinkRows merges the rows of a dimension beyond a number into other.
func shrinkRows(rows map[usageKey]*usageRow, by string, most int) {
	keys := sortedKeys(rows, by)
	if len(keys) <= most {
		return
	}
	other := usageKey{by: by, other: true}
	sum := rows[other]
	if sum == nil {
		sum = &usageRow{}
		rows[other] = sum
	}
	for _, k := range keys[most:] {
		sum.add(rows[k])
		delete(rows, k)
	}
	sum.name = ""
}

// sortedKeys returns the keys of a dimension without other, those with the most usage first.
func sortedKeys(rows map[usageKey]*usageRow, by string) (keys []usageKey) {
	for k := range rows {
		if k.by == by && !k.other {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b usageKey) int {
		return cmp.Or(compareUsage(rows[a], rows[b]), cmp.Compare(a.key, b.key))
	})
	return keys
}

// namedKey is a key and the name that clients see.
type namedKey struct {
	usageKey
	name string
}

// keysOf returns the keys that an instance counts for.
func keysOf(who subject) [3]namedKey {
	return [3]namedKey{
		{usageKey{by: api.ByGroup, key: who.group}, ""},
		{usageKey{by: api.ByOwner, key: who.owner}, who.owner},
		{usageKey{by: api.ByTemplate, key: who.template}, who.templateName},
	}
}

// count applies do to the current rows of an instance.
func (t *usageStats) count(inst *farm.Instance, do func(*usageRow)) {
	now := t.db.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keysOf(countedOf(inst).who) {
		t.rowsLocked(k.usageKey, k.name, now, do)
	}
}

func (t *usageStats) rowsLocked(k usageKey, name string, now time.Time, do func(*usageRow)) {
	for i := range t.rings {
		s := t.rings[i].now(now)
		s.changed = now
		do(s.row(k, name))
	}
}

func (t *usageStats) placed(inst *farm.Instance, waited time.Duration) {
	t.count(inst, func(r *usageRow) { r.queued.add(classOf(waited), 1) })
}

func (t *usageStats) started(inst *farm.Instance, took time.Duration) {
	t.count(inst, func(r *usageRow) {
		r.starts++
		r.started.add(classOf(took), 1)
	})
}

func (t *usageStats) failed(inst *farm.Instance) { t.count(inst, func(r *usageRow) { r.failures++ }) }

// runs counts an instance that enters the state Started, or leaves it.
func (t *usageStats) runs(who subject, change int) {
	now := t.db.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keysOf(who) {
		r := t.running[k.usageKey]
		if r == nil {
			r = &runningCount{since: now, name: k.name}
			t.running[k.usageKey] = r
		}
		t.settleLocked(k.usageKey, r, now)
		if r.n += change; r.n == 0 {
			delete(t.running, k.usageKey)
		}
	}
}

// settle counts the time of running instances up to now.
func (t *usageStats) settle() {
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

func (t *usageStats) settleLocked(k usageKey, r *runningCount, now time.Time) {
	past := min(max(now.Sub(r.since), 0), maxSettled)
	r.since = now
	if seconds := past.Seconds() * float64(r.n); seconds > 0 {
		t.rowsLocked(k, r.name, now, func(row *usageRow) { row.seconds += seconds })
	}
}
