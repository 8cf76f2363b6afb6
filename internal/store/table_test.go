package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

type car struct {
	Colour string
	Tags   []string
}

func openCars(t *testing.T) (*store.Store, *store.Table[car], *int) {
	t.Helper()
	rendered := new(int)
	cars := store.NewTable("car",
		store.WithIndex("colour", func(c *car) []string { return []string{c.Colour} }),
		store.WithIndex("tag", func(c *car) []string { return c.Tags }),
		store.WithSums("doors", func(c *car) (string, store.Amounts) {
			return c.Colour,
				store.Amounts{1, len(c.Tags)}
		}),
		store.WithCachedEncoding(func(c *car) []byte { *rendered++; return []byte("<" + c.Colour + ">") }),
		store.WithCodec(
			func(c *car) ([]byte, error) {
				if strings.Contains(c.Colour, "|") {
					return nil, errors.New("no such colour")
				}
				return []byte(c.Colour + "|" + strings.Join(c.Tags, "|")), nil
			},
			func(data []byte) (*car, error) {
				f := strings.Split(string(data), "|")
				return &car{f[0], f[1:]}, nil
			}))
	s, err := store.Open(t.Context(), mem.New(), store.Options{Tables: []store.AnyTable{cars}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, cars, rendered
}

func commit(t *testing.T, s *store.Store, changes ...store.Change) {
	t.Helper()
	if err := s.Commit(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
}

func ids[T any](seq func(func(string, *T) bool)) (ids []string) {
	for id := range seq {
		ids = append(ids, id)
	}
	return ids
}

func TestTableListings(t *testing.T) {
	s, cars, _ := openCars(t)
	for i := range 7 {
		commit(t, s, store.Put(cars, fmt.Sprint(6-i), &car{Colour: "red"}, store.IfAbsent))
	}
	for _, tc := range []struct {
		after string
		limit int
		want  string
	}{
		{"", 3, "012"}, {"2", 3, "345"}, {"5", 3, "6"}, {"6", 3, ""}, {"25", 2, "34"}, {"", 0, ""}, {"", 99, "0123456"},
	} {
		if got := strings.Join(ids(cars.Range(tc.after, tc.limit)), ""); got != tc.want {
			t.Errorf("%d after %q: %s, want %s", tc.limit, tc.after, got, tc.want)
		}
	}
	snapshot := cars.Snapshot()
	seen := 0
	for id := range cars.All() { // changing the table inside the loop is fine
		commit(t, s, store.Delete(cars, id, store.Any))
		if _, _, ok := cars.Get(id); ok {
			t.Errorf("%s is still there", id)
		}
		if seen++; seen == 5 {
			break
		}
	}
	if cars.Len() != 2 || snapshot.Len() != 7 || len(ids(snapshot.All())) != 7 {
		t.Errorf("%d records now, %d in the snapshot", cars.Len(), snapshot.Len())
	}
}

func TestTableIndex(t *testing.T) {
	s, cars, _ := openCars(t)
	commit(t, s,
		store.Put(cars, "a", &car{"red", []string{"old", "fast"}}, store.IfAbsent),
		store.Put(cars, "b", &car{"redder", []string{"fast"}}, store.IfAbsent),
		store.Put(cars, "c", &car{"red", nil}, store.IfAbsent))
	check := func(index, value string, want ...string) {
		t.Helper()
		if got := ids(cars.Where(index, value)); !slices.Equal(got, want) {
			t.Errorf("%s %s: %v, want %v", index, value, got, want)
		}
	}
	check("colour", "red", "a", "c")
	check("colour", "re")
	check("tag", "fast", "a", "b")
	commit(t, s, store.Put(cars, "a", &car{"blue", []string{"fast", "new"}}, store.Any),
		store.Delete(cars, "c", store.Any))
	check("colour", "red")
	check("colour", "blue", "a")
	check("tag", "old")
	check("tag", "fast", "a", "b")
	defer func() {
		if recover() == nil {
			t.Error("an index that does not exist was searched")
		}
	}()
	cars.Where("weight", "1")
}

func TestTableEncoded(t *testing.T) {
	s, cars, rendered := openCars(t)
	commit(t, s, store.Put(cars, "a", &car{Colour: "red"}, store.IfAbsent))
	for range 3 {
		if got := string(cars.Encoded("a")); got != "<red>" {
			t.Errorf("got %s", got)
		}
	}
	if *rendered != 1 {
		t.Errorf("rendered %d times", *rendered)
	}
	commit(t, s, store.Put(cars, "a", &car{Colour: "blue"}, store.Any))
	if got := string(cars.Encoded("a")); got != "<blue>" || cars.Encoded("b") != nil {
		t.Errorf("got %s", got)
	}
	if err := s.Commit(t.Context(), store.Put(cars, "a", &car{Colour: "|"}, store.Any)); err == nil ||
		errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("a record that cannot be encoded: %v", err)
	}
}

func TestOpenRefusesTables(t *testing.T) {
	taken := store.NewTable[car]("x")
	s, err := store.Open(t.Context(), mem.New(), store.Options{Tables: []store.AnyTable{taken}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for name, tables := range map[string][]store.AnyTable{
		"of another store": {taken},
		"twice":            {store.NewTable[car]("y"), store.NewTable[car]("y")},
		"without a name":   {store.NewTable[car]("")},
		"with a slash":     {store.NewTable[car]("a/b")},
		"of the store":     {store.NewTable[car]("meta")},
	} {
		if _, err := store.Open(t.Context(), mem.New(), store.Options{Tables: tables}); !errors.Is(err,
			store.ErrInvalid) {
			t.Errorf("a table %s: %v", name, err)
		}
	}
	if _, _, err := store.NewTable[car]("z").GetLinearizable(t.Context(), "a"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a table that is not open: %v", err)
	}
}

// TestTableInOrderOfAnIndex: rows come in the order of an index, from any position on; their number
// per value, and their sums, follow every change.
func TestTableInOrderOfAnIndex(t *testing.T) {
	s, cars, _ := openCars(t)
	check := func(want string, counts, tags map[string]int) {
		t.Helper()
		view := cars.Snapshot()
		for skip := range view.Len() + 2 {
			var got []string
			for row := range view.RowsOrderedBy("colour", skip) {
				got = append(got, row.ID()+row.Value().Colour[:1])
			}
			if all := strings.Fields(want); strings.Join(got, " ") != strings.Join(all[min(skip, len(all)):], " ") {
				t.Errorf("without the first %d: %v of %s", skip, got, want)
			}
		}
		for _, colour := range []string{"blue", "red", "re", "redder", ""} {
			if got := view.Sum("doors", colour); got != (store.Amounts{counts[colour], tags[colour]}) {
				t.Errorf("those that are %q amount to %v, want %d and %d", colour, got, counts[colour], tags[colour])
			}
		}
	}
	check("", nil, nil)
	commit(t, s, store.Put(cars, "2", &car{"red", []string{"a", "b"}}, store.Any),
		store.Put(cars, "1", &car{"red", []string{"a"}}, store.Any),
		store.Put(cars, "3", &car{"blue", []string{"a"}}, store.Any),
		store.Put(cars, "4", &car{"redder", []string{"a"}}, store.Any))
	check("3b 1r 2r 4r", map[string]int{"blue": 1, "red": 2, "redder": 1},
		map[string]int{"blue": 1, "red": 3, "redder": 1})
	commit(t, s, store.Put(cars, "2", &car{"blue", []string{"c"}}, store.Any),
		store.Put(cars, "1", &car{"red", []string{"a", "b", "c"}}, store.Any))
	check("2b 3b 1r 4r", map[string]int{"blue": 2, "red": 1, "redder": 1},
		map[string]int{"blue": 2, "red": 3, "redder": 1})
	commit(t, s, store.Delete(cars, "3", store.Any), store.Delete(cars, "1", store.Any))
	check("2b 4r", map[string]int{"blue": 1, "redder": 1}, map[string]int{"blue": 1, "redder": 1})
	const many = 1000 // more than one chunk of keys
	for i := range many {
		commit(t, s, store.Put(cars, fmt.Sprintf("m%04d", i), &car{"green", nil}, store.Any))
	}
	if n := cars.Snapshot().Sum("doors", "green")[0]; n != many {
		t.Errorf("%d are green", n)
	}
	next := 0
	for row := range cars.Snapshot().RowsOrderedBy("colour", 1+many/2) { // behind the blue one
		if want := fmt.Sprintf("m%04d", many/2+next); next < many/2 && row.ID() != want {
			t.Fatalf("%s, want %s", row.ID(), want)
		}
		next++
	}
	if next != many/2+1 {
		t.Errorf("%d in the second half", next)
	}
}

// TestPartOfRecords: a table with WithPartialRecords keeps that part alone, whichever way a record arrives;
// Load reads all of it.
func TestPartOfRecords(t *testing.T) {
	cars := func() *store.Table[car] {
		return store.NewTable("car", store.WithPartialRecords(func(c *car) *car { return &car{Colour: c.Colour} }))
	}
	backend := mem.New()
	open := func(table *store.Table[car]) *store.Store {
		t.Helper()
		s, err := store.Open(t.Context(), backend, store.Options{Tables: []store.AnyTable{table}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	writer, follower := cars(), cars()
	s := open(writer)
	open(follower)
	commit(t, s, store.Put(writer, "a", &car{"red", []string{"fast"}}, store.IfAbsent))
	read := map[string]func() (*car, error){
		"the writer": func() (*car, error) { c, _, _ := writer.Get("a"); return c, nil },
		"a follower": func() (*car, error) {
			c, _, err := follower.GetLinearizable(t.Context(), "a")
			return c,
				err
		},
		"one that was later": func() (*car, error) {
			later := cars()
			open(later)
			c, _, _ := later.Get("a")
			return c,
				nil
		},
	}
	for who, get := range read {
		if c, err := get(); err != nil || c == nil || c.Colour != "red" || c.Tags != nil {
			t.Errorf("%s has %+v, %v", who, c, err)
		}
	}
	if c, err := follower.LoadFull(t.Context(), "a"); err != nil || c == nil || len(c.Tags) != 1 {
		t.Errorf("loaded %+v, %v", c, err)
	}
	if c, err := follower.LoadFull(t.Context(), "b"); err != nil || c != nil {
		t.Errorf("loaded %+v, %v of no record", c, err)
	}
}
