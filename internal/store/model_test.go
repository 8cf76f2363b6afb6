package store

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
)

type fact struct{ at int64 }

// line drives a model with one table as watch and commits do.
type line struct {
	*model
	table *Table[fact]
}

func newLine() line {
	m := newModel(newDispatcher())
	table := NewTable[fact]("k")
	m.tables["k"] = table
	return line{m, table}
}

// at returns a change of a record at a revision; deleted when val is false.
func (l line) at(id string, rev int64, val bool) tableUpdate {
	u := tableUpdate{table: l.table, id: id, key: "k/" + id, rev: rev}
	if val {
		u.record = &fact{rev}
	}
	return u
}

func (l line) want(t *testing.T, id string, rev int64) {
	t.Helper()
	if got := l.table.revision(id); got != rev {
		t.Errorf("%s is at revision %d, want %d", id, got, rev)
	}
}

func one(u tableUpdate) []tableUpdate { return []tableUpdate{u} }

func TestModelOrders(t *testing.T) {
	for name, tc := range map[string]struct {
		run  func(l line)
		want int64 // revision of the record, 0: none
	}{
		"own commit, then its event": {func(l line) {
			l.applyCommitted(5, one(l.at("x", 5, true)))
			l.applyWatched(5, one(l.at("x", 5, true)))
		}, 5},
		"own commit answered after a foreign deletion": {func(l line) {
			l.applyWatched(5, one(l.at("x", 5, true)))
			l.applyWatched(6, one(l.at("x", 6, false)))
			l.applyCommitted(5, one(l.at("x", 5, true)))
		}, 0},
		"own commit answered after a listing without it": {func(l line) {
			l.replaceAll(6, nil, nil, false)
			l.applyCommitted(5, one(l.at("x", 5, true)))
		}, 0},
		"own deletion, then the older write": {func(l line) {
			l.applyCommitted(6, one(l.at("x", 6, false)))
			l.applyWatched(5, one(l.at("x", 5, true)))
		}, 0},
		"own deletion answered after a newer write": {func(l line) {
			l.applyWatched(7, one(l.at("x", 7, true)))
			l.applyCommitted(6, one(l.at("x", 6, false)))
		}, 7},
		"two own commits answered out of order": {func(l line) {
			l.applyCommitted(7, one(l.at("x", 7, true)))
			l.applyCommitted(6, one(l.at("x", 6, false)))
			l.applyWatched(6, one(l.at("x", 6, false)))
		}, 7},
		"listing older than an own commit": {func(l line) {
			l.applyCommitted(9, one(l.at("x", 9, true)))
			l.replaceAll(8, nil, nil, false)
		}, 9},
		"listing older than an own change": {func(l line) {
			l.applyCommitted(9, one(l.at("x", 9, true)))
			l.replaceAll(8, one(l.at("x", 7, true)), map[string]struct{}{"k/x": {}}, false)
		}, 9},
		"listing older than an own deletion": {func(l line) {
			l.applyCommitted(9, one(l.at("x", 9, false)))
			l.replaceAll(8, one(l.at("x", 7, true)), map[string]struct{}{"k/x": {}}, false)
		}, 0},
		"listing that lacks the record": {func(l line) {
			l.applyCommitted(7, one(l.at("x", 7, true)))
			l.replaceAll(8, nil, nil, false)
		}, 0},
		"listing with an older record: a restored backend": {func(l line) {
			l.applyWatched(7, one(l.at("x", 7, true)))
			l.replaceAll(8, one(l.at("x", 3, true)), map[string]struct{}{"k/x": {}}, false)
		}, 3},
		"another past at lower revisions": {func(l line) {
			l.applyWatched(70, one(l.at("x", 70, true)))
			l.replaceAll(8, one(l.at("x", 3, true)), map[string]struct{}{"k/x": {}}, true)
			l.applyWatched(9, one(l.at("x", 9, true)))
		}, 9},
		"another past after an own deletion": {func(l line) {
			l.applyCommitted(70, one(l.at("x", 70, false)))
			l.replaceAll(8, nil, nil, true)
			l.applyWatched(9, one(l.at("x", 9, true)))
		}, 9},
		"another past without the record": {func(l line) {
			l.applyWatched(70, one(l.at("x", 70, true)))
			l.replaceAll(8, nil, nil, true)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLine()
			tc.run(l)
			l.want(t, "x", tc.want)
		})
	}
}

func TestModelForgetsTombstones(t *testing.T) {
	l := newLine()
	for rev := int64(2); rev < 100; rev++ {
		l.applyCommitted(rev, one(l.at("x", rev, false)))
	}
	l.applyCommitted(100, one(l.at("y", 100, false)))
	l.applyWatched(99, nil)
	if len(l.tombstones) != 1 {
		t.Errorf("%d tombstones once the watch has passed all but one", len(l.tombstones))
	}
	l.applyWatched(100, nil)
	if len(l.tombstones) != 0 {
		t.Errorf("tombstones left: %v", l.tombstones)
	}
}

func TestModelKnowsLosers(t *testing.T) {
	l := newLine()
	l.applyWatched(5, one(l.at("x", 5, true)))
	l.applyCommitted(9, one(l.at("gone", 9, false)))
	for _, tc := range []struct {
		id   string
		want int64
		lost bool
	}{
		{"x", 5, false},   // as it is
		{"x", 4, true},    // has changed
		{"x", 6, false},   // newer than the model: the backend must decide
		{"x", 0, false},   // "absent" is for the backend to decide
		{"x", -1, false},  // no condition
		{"gone", 7, true}, // deleted since
		{"gone", 10, false},
		{"never", 3, true}, // the watch has passed 3, and the record does not exist
		{"never", 6, false},
	} {
		if got := l.isSuperseded(l.table, tc.id, "k/"+tc.id, tc.want); got != tc.lost {
			t.Errorf("%s at %d: lost is %v", tc.id, tc.want, got)
		}
	}
}

func TestModelReportsEvents(t *testing.T) {
	l := newLine()
	l.applyWatched(5, []tableUpdate{l.at("x", 5, true), l.at("y", 5, true)})
	l.applyCommitted(6, one(l.at("x", 6, false)))
	l.applyWatched(6, one(l.at("x", 6, false)))
	l.applyWatched(7, one(l.at("never", 7, false)))
	l.replaceAll(8, nil, nil, false)
	var told []string
	for _, ev := range l.dispatcher.queue {
		shape := map[[2]bool]string{{false, true}: "new ", {true, true}: "changed ", {true, false}: "gone "}
		told = append(told, shape[[2]bool{ev.Old != nil, ev.New != nil}]+ev.ID)
	}
	if want := []string{"new x", "new y", "gone x", "gone y"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// FuzzKeys passes any key and value to the watch: only records of open tables may come out, and
// nothing may panic.
func FuzzKeys(f *testing.F) {
	for _, seed := range []string{
		"/p/v1/k/x", "/p/v1/k/", "/p/v1/k", "/p/v1//x", "/p/v1/k/a/b", "/p/v1/other/x", "/p/v1", "", "/p/v1/k/\x00",
	} {
		f.Add(seed, `{"At":1}`, false)
	}
	f.Add("/p/v1/k/x", "{", false)
	f.Add("/p/v1/k/x", "", true)
	f.Fuzz(func(t *testing.T, key, value string, deleted bool) {
		l := newLine()
		s := &Store{model: l.model, recordPrefix: "/p/v1/", log: slog.New(slog.DiscardHandler)}
		ups := s.decodeEvents([]RawEvent{{KV: KV{Key: key, Value: []byte(value), ModRev: 2}, Deleted: deleted}})
		id, ours := strings.CutPrefix(key, "/p/v1/k/")
		if (len(ups) == 1) != (ours && id != "") {
			t.Fatalf("%q gives %v", key, ups)
		}
		l.applyWatched(2, ups)
		if _, _, ok := l.table.Get(id); ok != (ours && id != "" && !deleted && ups[0].record != nil) {
			t.Fatalf("%q = %q: in the table is %v", key, value, ok)
		}
	})
}
