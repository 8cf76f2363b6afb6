package store

import (
	"maps"
	"sync"
)

// Event is one change of a record as applied to the tables. Old and New are a *T of the table's type, or nil when
// there was, or is, no record.
type Event struct {
	Kind Kind
	ID   string
	Old  any
	New  any
	Rev  int64
}

// tableUpdate is one change on its way into the tables.
type tableUpdate struct {
	table  AnyTable
	id     string
	key    string // <kind>/<id>
	record any    // nil: deleted
	rev    int64
}

// model applies changes to the tables, each record forward only. It has two inputs: the watch,
// which has everything in order, and this process's own commits, which are ahead of the watch.
//
// The rule that separates them: up to watched the watch has delivered everything, so a commit at or
// below it is outdated. Above it a record moves to a higher revision only, and a deletion leaves a
// tombstone until the watch has passed, else an older write still in the watch would bring the
// record back.
type model struct {
	tables     map[Kind]AnyTable // fixed after Open
	dispatcher *dispatcher

	mu         sync.Mutex
	watchedRev int64            // the watch has delivered every revision up to here
	highestRev int64            // highest revision seen from anywhere
	tombstones map[string]int64 // <kind>/<id> -> revision of a deletion the watch has not reached
	advanced   chan struct{}    // closed and replaced when watched grows
}

func newModel(out *dispatcher) *model {
	return &model{
		tables:     map[Kind]AnyTable{},
		dispatcher: out,
		tombstones: map[string]int64{},
		advanced:   make(chan struct{}),
	}
}

// applyCommitted applies one transaction that this process committed, or a record it read, before the watch delivers
// it.
func (m *model) applyCommitted(rev int64, updates []tableUpdate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.highestRev = max(m.highestRev, rev)
	var events []Event
	for _, u := range updates {
		if u.rev <= m.watchedRev {
			continue
		}
		newest := u.rev > m.revLocked(u)
		events = m.applyLocked(events, u)
		if newest && u.record == nil {
			m.tombstones[u.key] = u.rev
		}
	}
	m.publishLocked(events)
}

// applyWatched applies one revision from the watch.
func (m *model) applyWatched(rev int64, updates []tableUpdate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var events []Event
	for _, u := range updates {
		events = m.applyLocked(events, u)
	}
	m.publishLocked(events)
	m.advanceLocked(rev)
}

// replaceAll makes the tables equal to a listing at revision rev: what the listing lacks was deleted.
// seen has every listed <kind>/<id>, updates those that the model does not have at that very
// revision. Only records newer than the listing stay; a listed record may even be older than the
// model's, after the backend was restored from a backup. With rewritten, the history was replaced,
// and the model's state does not count at all.
func (m *model) replaceAll(rev int64, updates []tableUpdate, seen map[string]struct{}, rewritten bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rewritten {
		m.watchedRev, m.highestRev = 0, 0
		clear(m.tombstones)
	}
	var events []Event
	for kind, t := range m.tables {
		for id, at := range t.revisions() {
			u := tableUpdate{table: t, id: id, key: string(kind) + "/" + id, rev: rev}
			if _, listed := seen[u.key]; !listed && (at <= rev || rewritten) {
				events = m.setRecordLocked(events, u)
			}
		}
	}
	for _, u := range updates {
		if known := m.revLocked(u); rewritten || (known != u.rev && known <= rev) {
			events = m.setRecordLocked(events, u)
		}
	}
	m.publishLocked(events)
	m.advanceLocked(rev)
}

// waitPublished waits until the changes of one revision in several tables are visible in all of them.
func (m *model) waitPublished() {
	m.mu.Lock()
	defer m.mu.Unlock()
}

// revLocked returns the revision up to which the model knows the record: its own, or that of its
// deletion.
func (m *model) revLocked(u tableUpdate) int64 {
	return max(u.table.revision(u.id), m.tombstones[u.key])
}

func (m *model) applyLocked(events []Event, u tableUpdate) []Event {
	if u.rev <= m.revLocked(u) {
		return events
	}
	return m.setRecordLocked(events, u)
}

func (m *model) setRecordLocked(events []Event, u tableUpdate) []Event {
	old := u.table.stageRecord(u.id, u.record, u.rev)
	if old == nil && u.record == nil {
		return events
	}
	return append(events, Event{Kind: u.table.Kind(), ID: u.id, Old: old, New: u.record, Rev: u.rev})
}

func (m *model) publishLocked(events []Event) {
	for _, t := range m.tables {
		t.publishStaged()
	}
	m.dispatcher.enqueue(events)
}

// advanceLocked records that the watch has delivered everything up to rev.
func (m *model) advanceLocked(rev int64) {
	if rev <= m.watchedRev {
		return
	}
	m.watchedRev, m.highestRev = rev, max(m.highestRev, rev)
	maps.DeleteFunc(m.tombstones, func(_ string, at int64) bool { return at <= rev })
	close(m.advanced)
	m.advanced = make(chan struct{})
}

// watchProgress returns the progress of the watch, the highest revision known, and a channel that closes
// when the watch advances.
func (m *model) watchProgress() (watched, highest int64, moved <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watchedRev, m.highestRev, m.advanced
}

// isSuperseded reports whether a record is certainly no longer at revision want: revisions only grow.
func (m *model) isSuperseded(t AnyTable, id, key string, want int64) bool {
	if want <= 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := t.revision(id)
	return at > want || m.tombstones[key] > want || (at == 0 && m.watchedRev >= want)
}
