package instances

import (
	"strconv"
	"testing"

	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

func failed(class farm.FailureClass, version int, node string) func(*farm.Instance) {
	return func(i *farm.Instance) {
		i.State, i.Failure = farm.Errored, &farm.Failure{Class: class, Step: farm.StepBoot}
		i.Template = farm.TemplateRef{ID: "t", Version: version}
		i.NodeID = node
	}
}

func TestEqualFailures(t *testing.T) {
	c := open(t)
	first := c.put(1, failed(farm.FailureTemplate, 1, "a"))[0]
	c.put(2, failed(farm.FailureTemplate, 1, "b"))
	c.put(1, failed(farm.FailureTemplate, 10, "a")) // another version
	c.put(1, failed(farm.FailureRegistry, 1, "a"))  // another class
	unplaced := c.put(1, failed(farm.FailureGroupDeleted, 1, ""))[0]
	c.put(1, failed(farm.FailureTemplate, 1, "a"), func(i *farm.Instance) { i.State = farm.Terminating })

	if got, want := c.EqualFailures(first), (EqualFailures{3, 2, 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := c.EqualFailures(unplaced), (EqualFailures{1, 0, 0}); got != want {
		t.Errorf("never placed: %+v, want %+v", got, want)
	}
}

// BenchmarkEqualFailures counts among many failed instances, which all are equal.
func BenchmarkEqualFailures(b *testing.B) {
	db := recordtest.Open(b)
	for n := range 20_000 {
		inst := &farm.Instance{ID: strconv.Itoa(n)}
		failed(farm.FailureTemplate, 1, strconv.Itoa(n%1000))(inst)
		recordtest.Commit(b, db, store.Put(db.Tables.Instances, inst.ID, inst, store.IfAbsent))
	}
	if err := db.UpToDate(b.Context()); err != nil {
		b.Fatal(err)
	}
	c := New(db, Options{})
	inst, _, _ := db.Tables.Instances.Get("0")
	for b.Loop() {
		if n := c.EqualFailures(inst); n.Template != maxEqualFailures {
			b.Fatal(n)
		}
	}
}
