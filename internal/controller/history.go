package controller

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/controller/macpool"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Bounds of the history: whichever is reached first.
const (
	keepPast    = 24 * time.Hour
	maxPast     = 20000
	pastPerTick = 2000 // removals in one tick, so that a large number of them delays no other job
)

// archiveInstance moves the record of a finished instance into the history, in one transaction.
func (c *Controller) archiveInstance(inst *farm.Instance, rev int64) []store.Change {
	p := inst.Past(c.now())
	return append(append(macpool.Free(c.tables, inst), c.payloads.DeleteScript(inst)...),
		store.Delete(c.tables.Instances, inst.ID, store.IfRev(rev)),
		store.Put(c.tables.History, record.HistoryKey(p), p, store.Any))
}

// HistoryQuery selects instances of the history; empty fields select all.
type HistoryQuery struct {
	ID, ExternalID string
	After          string // the id of an instance: only those that finished before it
	Limit          int
	Match          func(*farm.InstanceHistory) bool // nil: all
}

// after returns the id after which the page that follows an instance begins; ok is false when no
// page follows. An instance that is no longer in the history was among the oldest, and all that had
// finished before it were removed before it.
func (c *Controller) after(view *store.View[farm.InstanceHistory], id string) (from string, ok bool) {
	if id == "" {
		return "", true
	}
	for key := range view.Where(record.ByInstance, id) {
		from = key
	}
	_, _, lives := c.tables.Instances.Get(id)
	return from, from != "" || lives
}

// History returns the removed instances that are still in the history, the newest first.
func (c *Controller) History(q HistoryQuery) []*farm.InstanceHistory {
	view := c.tables.History.Snapshot()
	from, ok := c.after(view, q.After)
	if !ok {
		return nil
	}
	pages := view.Range(from, math.MaxInt)
	switch {
	case q.ID != "":
		pages = view.Where(record.ByInstance, q.ID)
	case q.ExternalID != "":
		pages = view.Where(record.ByExternalID, q.ExternalID)
	}
	var list []*farm.InstanceHistory
	for key, p := range pages {
		if len(list) == q.Limit {
			break
		}
		if key <= from || (q.ExternalID != "" && p.ExternalID != q.ExternalID) || (q.Match != nil && !q.Match(p)) {
			continue
		}
		list = append(list, p)
	}
	return list
}

// tidyHistory removes the entries that have been kept long enough, the oldest first.
func (c *Controller) tidyHistory(ctx context.Context, w *record.Term, now time.Time) error {
	var old []string
	for key := range c.tables.History.Range(record.HistoryFrom(now.Add(-keepPast)), pastPerTick) {
		old = append(old, key)
	}
	if excess := c.tables.History.Len() - c.opts.bounds.past; len(old) == 0 && excess > 0 {
		old = c.oldestPast(min(excess, pastPerTick))
	}
	return c.forget(ctx, w, old)
}

// oldestPast returns the ids of the n oldest records of the history.
func (c *Controller) oldestPast(n int) []string {
	view := c.tables.History.Snapshot()
	var names []string
	skip := view.Len() - n
	for key := range view.All() {
		if skip--; skip < 0 {
			names = append(names, key)
		}
	}
	return names
}

func (c *Controller) forget(ctx context.Context, w *record.Term, names []string) error {
	for some := range slices.Chunk(names, record.TxnChanges) {
		changes := make([]store.Change, len(some))
		for i, name := range some {
			changes[i] = store.Delete(c.tables.History, name, store.Any)
		}
		if err := w.Commit(ctx, changes...); err != nil {
			return err
		}
	}
	return nil
}
