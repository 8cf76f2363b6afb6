package record

import (
	"context"
	"fmt"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// firstLost is a store in which the first commit loses a race.
type firstLost struct {
	store.Writer
	commits int
}

func (f *firstLost) Commit(ctx context.Context, changes ...store.Change) error {
	if f.commits++; f.commits == 1 {
		return &store.ConflictError{Keys: []string{"n/x"}}
	}
	return f.Writer.Commit(ctx, changes...)
}

// TestBulk: records are changed as many at a time as fit, one by one where some lost a race, and a
// deleted record stays deleted.
func TestBulk(t *testing.T) {
	tables := NewTables(nil)
	st, err := store.Open(t.Context(), mem.New(), store.Options{Tables: tables.All()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	var ids []string
	for i := range 25 {
		id := fmt.Sprintf("n%02d", i)
		ids = append(ids, id)
		if i != 3 {
			n := &farm.Node{ID: id, Name: "old", State: farm.NodeOffline}
			if err := st.Commit(t.Context(), store.Put(tables.Nodes, id, n, store.Any)); err != nil {
				t.Fatal(err)
			}
		}
	}
	w := &firstLost{Writer: st}
	all := Bulk[farm.Node]{
		Writer: w, Limits: store.Limits{MaxOps: 10, MaxBytes: store.MaxBytes}, Table: tables.Nodes,
		Change: func(n *farm.Node) (*farm.Node, error) {
			if n.ID == "n04" {
				return n, nil
			}
			n = n.Clone()
			n.Name = "new"
			return n, nil
		},
	}
	if err := all.Update(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	if want := 1 + 10 + 2; w.commits != want { // lost, each of it, and two more
		t.Errorf("%d commits, want %d", w.commits, want)
	}
	for i, id := range ids {
		n, _, ok := tables.Nodes.Get(id)
		if ok != (i != 3) || ok && (n.Name == "new") != (i != 4) {
			t.Errorf("node %d: %+v", i, n)
		}
	}
}
