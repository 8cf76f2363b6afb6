package nodes

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// testStates reconciles the states of nodes whose last contact the test sets.
type testStates struct {
	*testNodes
	*StateReconciler
	contact time.Time
	now     time.Time
}

func openStates(t *testing.T) *testStates {
	s := &testStates{testNodes: open(t), now: time.Now().UTC()}
	s.contact = s.now
	db := s.testNodes.db
	db.Now = func() time.Time { return s.now }
	s.StateReconciler = NewStateReconciler(db, recordtest.Term(db), StateOptions{
		NodeTimeout: 2 * time.Minute,
		LastContact: func(string) time.Time { return s.contact },
		Orphans:     func(string) (sched.Load, bool) { return sched.Load{}, true },
		Since:       func(t time.Time) time.Time { return t },
		MarkLost: func(i *farm.Instance, now time.Time) *farm.Instance {
			i = i.Clone()
			i.NodeLostAt = now
			return i
		},
		WithEvent: s.withEvent,
	})
	return s
}

// reconcile checks a node some time after its last contact, and compares its state.
func (s *testStates) reconcile(id string, after time.Duration, want farm.NodeState, reason string) (again time.Time) {
	s.t.Helper()
	s.now = s.contact.Add(after)
	again, err := s.Reconcile(s.t.Context(), s.node(id))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.testNodes.db.UpToDate(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if n := s.node(id); n.State != want || n.StateReason != reason {
		s.t.Errorf("after %s: %s: %q, want %s: %q", after, n.State, n.StateReason, want, reason)
	}
	return again
}

// instance writes an instance on a node.
func (s *testStates) instance(id, node string, state farm.InstanceState, vm farm.VMStatus) *farm.Instance {
	inst := &farm.Instance{
		ID: id, NodeID: node, State: state, Updated: s.contact, Started: s.contact, VM: &farm.VMInfo{Status: vm},
	}
	s.commit(store.Put(s.testNodes.db.Tables.Instances, id, inst, store.Any))
	return inst
}

// TestOfflineNode: a node without contact is declared Offline when its timeout is over, and then its
// instances are marked.
func TestOfflineNode(t *testing.T) {
	s := openStates(t)
	id := s.addNode(farm.NodeInfo{})
	s.instance("instance", id, farm.Started, farm.VMRunning)
	if again := s.reconcile(id, time.Minute, farm.NodeActive, ""); !again.Equal(s.contact.Add(2 * time.Minute)) {
		t.Errorf("checked again at %s", again)
	}
	s.reconcile(id, 2*time.Minute, farm.NodeOffline, "no contact for 2m0s")
	s.reconcile(id, 2*time.Minute, farm.NodeOffline, "no contact for 2m0s")
	if inst, _, _ := s.testNodes.db.Tables.Instances.Get("instance"); !inst.NodeLostAt.Equal(s.now) {
		t.Errorf("lost since %s", inst.NodeLostAt)
	}
}

// TestNodeBackBeforeMark: instances of a node that returned after it was found Offline are not marked; new ones may be
// placed on it at that moment.
func TestNodeBackBeforeMark(t *testing.T) {
	s := openStates(t)
	id := s.addNode(farm.NodeInfo{})
	s.instance("instance", id, farm.Started, farm.VMRunning)
	before := s.node(id).Clone()
	before.State = farm.NodeOffline
	if _, err := s.Reconcile(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if err := s.testNodes.db.UpToDate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if inst, _, _ := s.testNodes.db.Tables.Instances.Get("instance"); !inst.NodeLostAt.IsZero() {
		t.Errorf("lost since %s", inst.NodeLostAt)
	}
}

// TestUnhealthyNode: a full node of whose VMs none runs is Unhealthy after a while, until one runs.
func TestUnhealthyNode(t *testing.T) {
	s := openStates(t)
	id := s.addNode(farm.NodeInfo{})
	if err := s.Configure(t.Context(), id, Config{Capacity: new(1)}); err != nil {
		t.Fatal(err)
	}
	inst := s.instance("instance", id, farm.Errored, farm.VMStopped)
	due := s.contact.Add(unhealthyAfter)
	if again := s.reconcile(id, unhealthyAfter-time.Second, farm.NodeActive, ""); !again.Equal(due) {
		t.Errorf("checked again at %s, want %s", again, due)
	}
	if node, at := s.Affected(nil, inst); node != id || !at.Equal(due) {
		t.Errorf("affected is %q at %s", node, at)
	}
	s.reconcile(id, unhealthyAfter, farm.NodeUnhealthy, "it is full, and none of its 1 VMs runs")
	runs := s.instance("instance", id, farm.Started, farm.VMRunning)
	if node, at := s.Affected(inst, runs); node != id || !at.Equal(s.now) {
		t.Errorf("affected is %q at %s", node, at)
	}
	s.reconcile(id, unhealthyAfter, farm.NodeActive, "")
	if node, _ := s.Affected(runs, runs); node != "" {
		t.Errorf("affected is %q by an instance that merely runs", node)
	}
}

// TestNodeWithProblem: a node that says that it starts no VMs is Unhealthy with its reason, until it says so no more.
func TestNodeWithProblem(t *testing.T) {
	s := openStates(t)
	id := s.addNode(farm.NodeInfo{Hypervisor: farm.Hypervisor{Driver: "tart", Problem: "restart it"}})
	s.reconcile(id, 0, farm.NodeUnhealthy, "restart it")
	info := &farm.NodeInfo{NodeID: id, Hypervisor: farm.Hypervisor{Driver: "tart"}}
	s.commit(store.Put(s.testNodes.db.Tables.Infos, id, info, store.Any))
	s.reconcile(id, time.Second, farm.NodeActive, "")
}

// TestExpiredLicense: a node whose hypervisor's license has expired changes its state at that time.
func TestExpiredLicense(t *testing.T) {
	s := openStates(t)
	ends := s.contact.Add(time.Minute).Truncate(time.Second)
	text := ends.Format(time.RFC3339)
	id := s.addNode(farm.NodeInfo{Hypervisor: farm.Hypervisor{LicenseExpires: text}})
	if again := s.reconcile(id, time.Second, farm.NodeActive, ""); !again.Equal(ends) {
		t.Errorf("checked again at %s", again)
	}
	to, _ := farm.NextNodeState(farm.NodeActive, false, farm.LicenseExpired)
	s.reconcile(id, time.Minute, to, "its license expired: "+text)
}

// TestEmptiedNode: that a drained node is empty is recorded once per drain.
func TestEmptiedNode(t *testing.T) {
	s := openStates(t)
	id := s.addNode(farm.NodeInfo{})
	s.instance("instance", id, farm.Started, farm.VMRunning)
	if err := s.Configure(t.Context(), id, Config{Drain: new(true)}); err != nil {
		t.Fatal(err)
	}
	s.events = nil
	s.reconcile(id, time.Second, farm.NodeActive, "")
	s.wantEvents()
	s.commit(store.Delete(s.testNodes.db.Tables.Instances, "instance", store.Any))
	s.reconcile(id, time.Second, farm.NodeActive, "")
	s.reconcile(id, 2*time.Second, farm.NodeActive, "")
	s.wantEvents(farm.EventNodeDrained)
	if d := s.node(id).DrainInfo; !d.Emptied.Equal(s.contact.Add(time.Second)) {
		t.Errorf("emptied at %s", d.Emptied)
	}
}
