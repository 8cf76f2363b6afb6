package history

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// put writes records of the history.
func put(t *testing.T, db record.DB, list ...*farm.InstanceHistory) {
	t.Helper()
	var changes []store.Change
	for _, p := range list {
		changes = append(changes, store.Put(db.Tables.History, record.HistoryKey(p), p, store.Any))
	}
	for some := range slices.Chunk(changes, record.TxnChanges) {
		commit(t, db, some...)
	}
}

func commit(t *testing.T, db record.DB, changes ...store.Change) {
	t.Helper()
	if err := db.Store.Commit(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
	if err := db.UpToDate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestArchive: the record of an instance moves in one transaction, with what the instance has.
func TestArchive(t *testing.T) {
	db := recordtest.Open(t)
	h := New(db, DefaultMax, func(i *farm.Instance) []store.Change {
		return []store.Change{store.Delete(db.Tables.Scripts, i.Options.ScriptID, store.Any)}
	})
	inst := &farm.Instance{ID: "1", State: farm.Terminated, Options: farm.StartOptions{ScriptID: "script"}}
	commit(t, db, store.Put(db.Tables.Instances, inst.ID, inst, store.IfAbsent),
		store.Put(db.Tables.Scripts, "script", &record.Script{Text: []byte("true")}, store.IfAbsent))
	_, rev, _ := db.Tables.Instances.Get(inst.ID)
	commit(t, db, h.Archive(inst, rev)...)
	if n := db.Tables.Instances.Len() + db.Tables.Scripts.Len(); n != 0 {
		t.Errorf("%d records are left", n)
	}
	if list := h.List(Query{ID: inst.ID, Limit: 2}); len(list) != 1 {
		t.Errorf("history: %+v", list)
	}
}

// TestPages reads the history in pages, the newest records first.
func TestPages(t *testing.T) {
	db := recordtest.Open(t)
	h := New(db, DefaultMax, nil)
	var want []string
	for i := range 25 {
		p := &farm.InstanceHistory{
			ID: fmt.Sprintf("id-%02d", i), ExternalID: fmt.Sprint(i % 2),
			Finished: db.Now().Add(time.Duration(i) * time.Millisecond),
		}
		put(t, db, p)
		want = append([]string{p.ID}, want...)
	}
	pages := func(q Query) (got []string) {
		for q.Limit = 4; ; q.After = got[len(got)-1] {
			list := h.List(q)
			for _, p := range list {
				got = append(got, p.ID)
			}
			if len(list) < 4 {
				return got
			}
		}
	}
	if got := pages(Query{}); !slices.Equal(got, want) {
		t.Errorf("pages = %v", got)
	}
	odd := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return id[len(id)-1]%2 == 0 })
	if got := pages(Query{ExternalID: "1"}); !slices.Equal(got, odd) {
		t.Errorf("pages of one external id = %v", got)
	}

	// The oldest entries are removed from the history; the instances that still exist have finished later.
	last := want[len(want)-1]
	for key := range db.Tables.History.Where(record.ByInstance, last) {
		commit(t, db, store.Delete(db.Tables.History, key, store.Any))
	}
	if list := h.List(Query{After: last, Limit: 100}); len(list) != 0 {
		t.Errorf("after a removed record: %+v", list)
	}
	commit(t, db, store.Put(db.Tables.Instances, "exists", &farm.Instance{ID: "exists"}, store.IfAbsent))
	if list := h.List(Query{After: "exists", Limit: 100}); len(list) != len(want)-1 {
		t.Errorf("after an instance that exists: %d records", len(list))
	}
}

// TestPrune: the records that are too old or too many are removed, the oldest first and not too many at
// a time.
func TestPrune(t *testing.T) {
	const most = MaxRemovals + 1000
	db := recordtest.Open(t)
	h := New(db, most, nil)
	begin := db.Now()
	fill := func(n int, at time.Time) {
		list := make([]*farm.InstanceHistory, n)
		for i := range list {
			list[i] = &farm.InstanceHistory{
				ID: fmt.Sprint(at.Unix(), "-", i), Finished: at.Add(time.Duration(i)),
			}
		}
		put(t, db, list...)
	}
	fill(most, begin)
	fill(MaxRemovals+150, begin.Add(time.Hour))
	prune := func(at time.Time, want int) {
		t.Helper()
		if err := h.Prune(t.Context(), recordtest.Term(db), at); err != nil {
			t.Fatal(err)
		}
		if err := db.UpToDate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := db.Tables.History.Len(); n != want {
			t.Errorf("%s: %d records are kept, want %d", at, n, want)
		}
	}
	prune(begin, most+150)
	prune(begin, most)
	for i, want := range map[int]int{MaxRemovals + 149: 0, MaxRemovals + 150: 1} {
		if list := h.List(Query{ID: fmt.Sprint(begin.Unix(), "-", i), Limit: 1}); len(list) != want {
			t.Errorf("record %d is there %d times, want %d", i, len(list), want)
		}
	}
	prune(begin.Add(Retention-time.Second), most)
	prune(begin.Add(Retention+time.Second), MaxRemovals+150)
}
