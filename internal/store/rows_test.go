package store_test

import (
	"iter"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/store"
)

func TestRows(t *testing.T) {
	s, cars, rendered := openCars(t)
	commit(t, s,
		store.Put(cars, "a", &car{Colour: "red"}, store.IfAbsent),
		store.Put(cars, "b", &car{Colour: "redder"}, store.IfAbsent),
		store.Put(cars, "c", &car{Colour: "red"}, store.IfAbsent))
	view := cars.Snapshot()
	check := func(what string, rows iter.Seq[store.Row[car]], want ...string) {
		t.Helper()
		var got []string
		for row := range rows {
			got = append(got, row.ID()+string(row.Encoded())+row.Value().Colour)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	commit(t, s, store.Delete(cars, "c", store.Any)) // the view does not see it
	check("all", view.Rows(""), "a<red>red", "b<redder>redder", "c<red>red")
	check("after one", view.Rows("a"), "b<redder>redder", "c<red>red")
	check("after one that is not there", view.Rows("aa"), "b<redder>redder", "c<red>red")
	check("after the last", view.Rows("c"))
	check("of an index", view.RowsWhere("colour", "red", ""), "a<red>red", "c<red>red")
	check("of an index after one", view.RowsWhere("colour", "red", "a"), "c<red>red")
	check("of an index without such", view.RowsWhere("colour", "green", ""))
	if *rendered != 3 {
		t.Errorf("3 records were encoded %d times", *rendered)
	}
	if _, ok := cars.Snapshot().Row("c"); ok {
		t.Error("a row of a record that is gone")
	}
	plain := store.NewTable[car]("plain")
	check("of an empty table", plain.Snapshot().Rows(""))
}
