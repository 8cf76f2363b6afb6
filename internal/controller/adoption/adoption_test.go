package adoption

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// orphans are the orphaned VMs of one node.
type orphans struct {
	db  record.DB
	vms map[string]record.OrphanedVM
}

func (o orphans) On(*farm.Node) (list []record.OrphanedVM) {
	for _, vm := range o.vms {
		list = append(list, vm)
	}
	return list
}

func (o orphans) HasInventory(string) bool { return true }

func (o orphans) Contains(_, id string) bool {
	_, ok := o.vms[id]
	return ok
}

func (o orphans) IsReleased(node, id string) bool {
	_, _, ok := o.db.Tables.Released.Get(record.ReleasedOrphanID(node, id))
	return ok
}

func (o orphans) Claim(_, id string) (record.OrphanedVM, error) {
	vm, ok := o.vms[id]
	if !ok {
		return vm, record.ErrNotOrphaned
	}
	return vm, nil
}

func (o orphans) Unclaim(string, string) {}

// TestAdopt adopts VMs with and without a pending record, and refuses one whose record is elsewhere.
func TestAdopt(t *testing.T) {
	db := recordtest.Open(t)
	node := &farm.Node{ID: "node", Name: "one"}
	put := func(inst *farm.Instance) store.Change {
		return store.Put(db.Tables.Instances, inst.ID, inst, store.IfAbsent)
	}
	if err := db.Store.Commit(t.Context(), store.Put(db.Tables.Nodes, node.ID, node, store.IfAbsent),
		put(&farm.Instance{ID: "pending", State: farm.Scheduling, Name: "job"}),
		put(&farm.Instance{ID: "elsewhere", State: farm.Started, NodeID: "other"})); err != nil {
		t.Fatal(err)
	}
	o := orphans{db, map[string]record.OrphanedVM{}}
	for _, id := range []string{"lost", "pending", "elsewhere"} {
		item := api.InventoryItem{InstanceID: id, Claim: "claim"}
		o.vms[id] = record.OrphanedVM{ID: id, Held: item, Detail: &api.InventoryDetail{
			ID: id, ContentID: "content", Status: api.InstanceStatus{InstanceID: id, No: 7},
		}}
	}
	a := New(db, Options{
		Registry: "http://registry", Orphans: o, Signal: func(string) {},
		Apply: func(inst *farm.Instance, _ api.InstanceStatus, _ time.Time) *farm.Instance {
			inst.State = farm.Started
			return inst
		},
		FindMAC:   func(*farm.Instance) (string, bool) { return "", false },
		AssignMAC: func(*farm.Instance) []store.Change { return nil },
	})
	adopt := func(r Request, want map[string]string) {
		t.Helper()
		list, err := a.Adopt(t.Context(), r)
		if err != nil || len(list) != len(want) {
			t.Fatalf("%+v, %v; want %v", list, err, want)
		}
		for _, one := range list {
			if one.Outcome != want[one.ID] {
				t.Errorf("%s: %s %s, want %s", one.ID, one.Outcome, one.Why, want[one.ID])
			}
		}
	}
	outcomes := map[string]string{"lost": OutcomeKept, "pending": OutcomeKept, "elsewhere": OutcomeRefused}
	adopt(Request{Node: "one", Action: Keep, DryRun: true}, map[string]string{
		"lost": OutcomeKept, "pending": OutcomeKept, "elsewhere": OutcomeRefused,
	})
	if n := db.Tables.Instances.Len(); n != 2 {
		t.Errorf("%d instances after a dry run", n)
	}
	for range 2 { // a repeated call has the same outcomes
		adopt(Request{Node: "one", Action: Keep}, outcomes)
		delete(o.vms, "lost")
		outcomes = map[string]string{"pending": OutcomeKept, "elsewhere": OutcomeRefused}
	}
	for id, name := range map[string]string{"lost": "", "pending": "job"} {
		inst, _, err := db.Tables.Instances.GetLinearizable(t.Context(), id)
		if err != nil || inst.NodeID != node.ID || inst.Claim != "claim" || inst.Name != name ||
			inst.StatusNumber != 6 ||
			inst.State != farm.Started {
			t.Errorf("%s: %+v, %v", id, inst, err)
		}
	}
	adopt(Request{Node: "node", Action: Remove, VMs: []string{"elsewhere"}},
		map[string]string{"elsewhere": OutcomeRemoved})
	if n := db.Tables.Released.Len(); n != 1 {
		t.Errorf("%d VMs are released", n)
	}
}
