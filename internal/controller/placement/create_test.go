package placement

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// leading returns a placer of the leader, with a node of some capacity.
func leading(t *testing.T, db record.DB, capacity int, o Options) (*Placer, *farm.Node) {
	t.Helper()
	o.Blocker, o.Settled = open{}, time.Now()
	o.Others = func(string) OtherUsage { return OtherUsage{} }
	o.AssignMAC = func(*farm.Instance) []store.Change { return nil }
	p := New(db, o)
	node := &farm.Node{
		ID: "node", Name: "one", State: farm.NodeActive, Capacity: capacity,
		CapacityMode: farm.CapacityByVMs,
	}
	commit(t, db, store.Put(db.Tables.Nodes, node.ID, node, store.Any),
		store.Put(db.Tables.Infos, node.ID, &farm.NodeInfo{NodeID: node.ID, Arch: "amd64"}, store.Any))
	p.Load()
	p.Begin(recordtest.Term(db))
	return p, node
}

func commit(t *testing.T, db record.DB, changes ...store.Change) {
	t.Helper()
	if err := db.Store.Commit(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
}

// newInstances returns instances that are about to be created.
func newInstances(db record.DB, count int) []*farm.Instance {
	instances := make([]*farm.Instance, count)
	for i := range instances {
		instances[i] = &farm.Instance{
			ID: record.NewID(), State: farm.Scheduling, Template: farm.TemplateRef{ID: "t", Arch: "amd64", CPUs: 1},
			Options: farm.StartOptions{Priority: farm.DefaultPriority}, Created: db.Now(), Updated: db.Now(),
		}
	}
	return instances
}

func admitAll([]*farm.Instance) (func(), error) { return func() {}, nil }

// TestEveryTransactionChecksItsNode drains a node between two transactions of one request.
func TestEveryTransactionChecksItsNode(t *testing.T) {
	db := recordtest.Open(t)
	p, node := leading(t, db, 500, Options{})
	instances := newInstances(db, 300)
	drafts, term := p.admit(instances)
	batches := p.batches(drafts, nil)
	if term == nil || len(batches) < 3 {
		t.Fatalf("%d transactions, leader: %t", len(batches), term != nil)
	}
	if err := p.writeBatch(t.Context(), term, batches[0]); err != nil {
		t.Fatal(err)
	}
	drained := node.Clone()
	drained.Drain = true
	commit(t, db, store.Put(db.Tables.Nodes, node.ID, drained, store.Any))
	for _, b := range batches[1:] {
		if err := p.writeBatch(t.Context(), term, b); err != nil {
			t.Fatal(err)
		}
	}
	placed := 0
	for _, inst := range db.Tables.Instances.All() {
		if inst.NodeID != "" {
			placed++
		}
	}
	if want := len(batches[0].drafts); placed != want || db.Tables.Instances.Len() != len(instances) {
		t.Errorf("%d of %d instances are on the drained node, want the %d from before", placed,
			db.Tables.Instances.Len(), want)
	}
}

// fakeKey is an idempotency key whose end can fail.
type fakeKey struct {
	begun []string
	ends  []error
	fail  error
}

var _ Key = (*fakeKey)(nil)

func (k *fakeKey) Changes() []store.Change { return nil }

func (k *fakeKey) Begun(ids []string) []store.Change {
	k.begun = ids
	return nil
}

func (k *fakeKey) End(_ context.Context, failed error) error {
	k.ends = append(k.ends, failed)
	if failed == nil {
		return k.fail
	}
	return nil
}

// TestCreateWithKey: a request of several transactions is recorded before and after, and all of its
// instances are terminated when its end cannot be recorded.
func TestCreateWithKey(t *testing.T) {
	for _, fail := range []error{nil, errors.New("the store is full")} {
		terminated := 0
		db := recordtest.Open(t)
		p, _ := leading(t, db, 500, Options{
			Terminate: func(context.Context, store.Writer, string) error { terminated++; return nil },
		})
		instances, key := newInstances(db, 300), &fakeKey{fail: fail}
		err := p.Create(t.Context(), Creation{Instances: instances, Key: key, Admit: admitAll})
		if !errors.Is(err, fail) || len(key.begun) != len(instances) {
			t.Errorf("%v: error %v, %d instances recorded", fail, err, len(key.begun))
		}
		wantEnds, wantTerminated := 1, 0
		if fail != nil {
			wantEnds, wantTerminated = 2, len(instances)
		}
		if len(key.ends) != wantEnds || terminated != wantTerminated {
			t.Errorf("%v: %d ends, %d instances terminated", fail, len(key.ends), terminated)
		}
	}
}

// TestRefusedCreation: nothing is written when the pending instances are refused, and their capacity is
// free again.
func TestRefusedCreation(t *testing.T) {
	db := recordtest.Open(t)
	p, node := leading(t, db, 1, Options{})
	refused := errors.New("limit reached")
	err := p.Create(t.Context(), Creation{
		Instances: newInstances(db, 3),
		Admit: func(pending []*farm.Instance) (func(), error) {
			if len(pending) != 2 {
				t.Errorf("%d instances are pending", len(pending))
			}
			return nil, refused
		},
	})
	used, _ := p.Used(node.ID)
	if !errors.Is(err, refused) || db.Tables.Instances.Len() != 0 || used.VMs != 0 {
		t.Errorf("%v, %d instances, %d slots in use", err, db.Tables.Instances.Len(), used.VMs)
	}
}

// TestRollbackRetries: instances that cannot be terminated immediately are terminated later.
func TestRollbackRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int64 // the retries run beside the test
		db := recordtest.Open(t)
		p, _ := leading(t, db, 1, Options{Terminate: func(context.Context, store.Writer, string) error {
			if attempts.Add(1) < 3 {
				return errors.New("the store is busy")
			}
			return nil
		}})
		p.rollBack(t.Context(), []draft{{requested: newInstances(db, 1)[0]}}, true)
		if n := attempts.Load(); n != 1 {
			t.Errorf("%d attempts before the call returns", n)
		}
		time.Sleep(3 * rollbackInterval)
		synctest.Wait()
		if n := attempts.Load(); n != 3 {
			t.Errorf("%d attempts", n)
		}
	})
}
