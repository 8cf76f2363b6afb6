package history

import (
	"context"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Bounds of the history: whichever is reached first.
const (
	Retention  = 24 * time.Hour
	DefaultMax = 20000
)

// MaxRemovals is how many records are removed at a time, so that a large number of them delays no other
// job.
const MaxRemovals = 2000

// History is the history of a cloud.
type History struct {
	db      record.DB
	max     int
	release func(inst *farm.Instance) []store.Change
}

// New returns the history in a database, of limit records at most. release returns the changes that free
// what an instance has besides its record.
func New(db record.DB, limit int, release func(inst *farm.Instance) []store.Change) *History {
	return &History{db, limit, release}
}

// Archive returns the changes that move the record of a finished instance into the history.
func (h *History) Archive(inst *farm.Instance, rev int64) []store.Change {
	if inst.IsStandby() { // no caller has asked for it
		return append(h.release(inst), store.Delete(h.db.Tables.Instances, inst.ID, store.IfRev(rev)))
	}
	past := inst.HistoryRecord(h.db.Now())
	return append(h.release(inst),
		store.Delete(h.db.Tables.Instances, inst.ID, store.IfRev(rev)),
		store.Put(h.db.Tables.History, record.HistoryKey(past), past, store.Any))
}

// Query selects instances of the history; empty fields select all.
type Query struct {
	ID, ExternalID string
	After          string // the id of an instance: only those that finished before it
	Limit          int
	Match          func(*farm.InstanceHistory) bool // nil: all
}

// startAfter returns the id after which the page that follows an instance begins; ok is false when no
// page follows. An instance that is no longer in the history was among the oldest, and all that had
// finished before it were removed before it.
func (h *History) startAfter(view *store.View[farm.InstanceHistory], id string) (from string, ok bool) {
	if id == "" {
		return "", true
	}
	for key := range view.Where(record.ByInstance, id) {
		from = key
	}
	_, _, exists := h.db.Tables.Instances.Get(id)
	return from, from != "" || exists
}

// List returns the removed instances that are still in the history, the newest first.
func (h *History) List(q Query) []*farm.InstanceHistory {
	view := h.db.Tables.History.Snapshot()
	from, ok := h.startAfter(view, q.After)
	if !ok {
		return nil
	}
	rows := view.Range(from, math.MaxInt)
	switch {
	case q.ID != "":
		rows = view.Where(record.ByInstance, q.ID)
	case q.ExternalID != "":
		rows = view.Where(record.ByExternalID, q.ExternalID)
	}
	var list []*farm.InstanceHistory
	for key, inst := range rows {
		if len(list) == q.Limit {
			break
		}
		if key <= from || (q.ExternalID != "" && inst.ExternalID != q.ExternalID) ||
			(q.Match != nil && !q.Match(inst)) {
			continue
		}
		list = append(list, inst)
	}
	return list
}

// Rows yields the removed instances that are still in the history, the newest first.
func (h *History) Rows() iter.Seq[store.Row[farm.InstanceHistory]] {
	return h.db.Tables.History.Snapshot().Rows("")
}

// Prune removes the entries that have been kept long enough, the oldest first.
func (h *History) Prune(ctx context.Context, w *record.Term, now time.Time) error {
	var expired []string
	for key := range h.db.Tables.History.Range(record.HistoryFrom(now.Add(-Retention)), MaxRemovals) {
		expired = append(expired, key)
	}
	if excess := h.db.Tables.History.Len() - h.max; len(expired) == 0 && excess > 0 {
		expired = h.oldest(min(excess, MaxRemovals))
	}
	return h.remove(ctx, w, expired)
}

// oldest returns the ids of the n oldest records of the history.
func (h *History) oldest(n int) []string {
	view := h.db.Tables.History.Snapshot()
	var ids []string
	skip := view.Len() - n
	for key := range view.All() {
		if skip--; skip < 0 {
			ids = append(ids, key)
		}
	}
	return ids
}

func (h *History) remove(ctx context.Context, w *record.Term, ids []string) error {
	for some := range slices.Chunk(ids, record.TxnChanges) {
		changes := make([]store.Change, len(some))
		for i, id := range some {
			changes[i] = store.Delete(h.db.Tables.History, id, store.Any)
		}
		if err := w.Commit(ctx, changes...); err != nil {
			return err
		}
	}
	return nil
}
