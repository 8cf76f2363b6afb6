package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// cloud is what a reconciler needs of other parts: nothing is paused, and no node changes its state.
type cloud struct{ lastContact time.Time }

func (*cloud) Reconcile(context.Context, *farm.Node) (again time.Time, err error) { return again, nil }
func (*cloud) Affected(_, _ *farm.Instance) (node string, at time.Time)           { return "", at }

func (c *cloud) options() Options {
	return Options{
		Tick: time.Second, InstanceTimeout: time.Minute, ContactGap: time.Minute, Nodes: c,
		Paused: func() bool { return false }, From: func(t time.Time) time.Time { return t },
		LastContact:    func(string) time.Time { return c.lastContact },
		Unacknowledged: func(*farm.Instance) bool { return false },
	}
}

// TestRemovedRecord: the entry of a removed record leaves the queue.
func TestRemovedRecord(t *testing.T) {
	db := recordtest.Open(t)
	r := New(db, recordtest.Term(db), new(cloud).options())
	inst := &farm.Instance{ID: "removed", State: farm.Started, NodeID: "node", Expires: db.Now().Add(time.Hour)}
	for want, e := range []store.Event{{Old: inst}, {New: inst}} {
		e.Kind, e.ID = record.KindInstance, inst.ID
		r.observe([]store.Event{{Kind: record.KindInstance, ID: inst.ID, New: inst}, e})
		if r.queue.len() != want {
			t.Errorf("%d records in the queue, want %d", r.queue.len(), want)
		}
	}
}

// TestInContact: what is due on a node without contact is delayed.
func TestInContact(t *testing.T) {
	db, c := recordtest.Open(t), &cloud{}
	r := New(db, recordtest.Term(db), c.options())
	now := db.Now()
	for _, step := range []struct {
		silence time.Duration
		due     bool
	}{{0, true}, {50 * time.Second, true}, {2 * time.Minute, false}} {
		c.lastContact = now.Add(-step.silence)
		if at := r.inContact("node", now); at.Equal(now) != step.due {
			t.Errorf("no contact for %s: due at %s, now is %s", step.silence, at, now)
		}
	}
}

// refuse is the writer of a term that has lost its lease.
type refuse struct{}

func (refuse) Commit(context.Context, ...store.Change) error { return store.ErrFenced }

// TestChangesAreFenced: a reconciler whose term is over changes no instance.
func TestChangesAreFenced(t *testing.T) {
	db := recordtest.Open(t)
	r := New(db, record.NewTerm(refuse{}, db.Now(), nil, func() {}), new(cloud).options())
	inst := &farm.Instance{
		ID: "instance", State: farm.Started, NodeID: "node", Updated: db.Now(), Expires: db.Now().Add(-time.Second),
	}
	if err := db.Store.Commit(t.Context(), store.Put(db.Tables.Instances, inst.ID, inst, store.Any)); err != nil {
		t.Fatal(err)
	}
	if err := db.UpToDate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.CheckInstance(t.Context(), inst.ID); !errors.Is(err, store.ErrFenced) {
		t.Errorf("an instance whose time to live is over: %v", err)
	}
}

// TestJobs: a job is due after the changes that it follows, and else at every sweep; maintenance mode
// delays it.
func TestJobs(t *testing.T) {
	db := recordtest.Open(t)
	runs := map[string]int{}
	job := func(name string) Job {
		return Job{Name: name, Do: func(context.Context, *record.Term, time.Time) error { runs[name]++; return nil }}
	}
	always, after, swept, paused := job("always"), job("after"), job("swept"), job("paused")
	paused.Always, paused.Pauses = true, true
	always.Always = true
	after.After = func(e store.Event) bool { return e.Kind == record.KindSave }
	o := new(cloud).options()
	o.Jobs = []Job{always, after, swept, paused}
	o.Paused = func() bool { return true }
	r := New(db, recordtest.Term(db), o)
	r.runJobs(t.Context()) // the first sweep
	r.runJobs(t.Context())
	r.observe([]store.Event{{Kind: record.KindNodeInfo}, {Kind: record.KindSave}})
	r.runJobs(t.Context())
	r.runJobs(t.Context())
	for name, want := range map[string]int{"always": 4, "after": 2, "swept": 1, "paused": 0} {
		if runs[name] != want {
			t.Errorf("job %s ran %d times, want %d", name, runs[name], want)
		}
	}
}
