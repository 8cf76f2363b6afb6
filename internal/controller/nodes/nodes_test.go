package nodes

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

func everyNode(string) bool { return true }

// TestVLANsOfAllNodes: those are listed that every node offers which is not Offline.
func TestVLANsOfAllNodes(t *testing.T) {
	n := open(t)
	want := func(want ...int) {
		t.Helper()
		if got := n.VLANs(everyNode); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	want()
	one := n.addNode(farm.NodeInfo{VLANs: []int{3, 20, 100}})
	want(3, 20, 100)
	n.addNode(farm.NodeInfo{VLANs: []int{3, 7, 100}})
	want(3, 100)
	none := n.addNode(farm.NodeInfo{})
	want()
	for _, id := range []string{one, none} {
		node := n.node(id).Clone()
		node.State = farm.NodeOffline
		n.commit(store.Put(n.db.Tables.Nodes, id, node, store.Any))
	}
	want(3, 7, 100)
	if got := n.VLANs(func(string) bool { return false }); len(got) != 0 {
		t.Errorf("of nodes that the caller does not see: %v", got)
	}
}

// TestUSBCounts: devices are counted by name, or by location where they have none.
func TestUSBCounts(t *testing.T) {
	n := open(t)
	n.addNode(farm.NodeInfo{USBDevices: []farm.USBDevice{
		{Name: "phone", Location: "1-1"}, {Name: "phone", Location: "1-2", Busy: true}, {Location: "1-3"},
	}})
	n.addNode(farm.NodeInfo{USBDevices: []farm.USBDevice{{Name: "phone", Location: "1-1"}}})
	want := map[string]farm.USBCount{"phone": {Available: 2, Busy: 1}, "1-3": {Available: 1}}
	if got := n.USB(everyNode); !maps.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestView: a view has the groups that exist, the load, and the VMs that run.
func TestView(t *testing.T) {
	n := open(t)
	id := n.addNode(farm.NodeInfo{Arch: "amd64"})
	node := n.node(id).Clone()
	node.Groups, node.Drain = []string{"known", "deleted"}, true
	running := &farm.Instance{
		ID: "runs", NodeID: id, State: farm.Started, VM: &farm.VMInfo{Status: farm.VMRunning, CPUs: 2, MemoryMB: 512},
	}
	starting := &farm.Instance{ID: "starts", NodeID: id, State: farm.Scheduling}
	n.commit(store.Put(n.db.Tables.Nodes, id, node, store.Any),
		store.Put(n.db.Tables.Groups, "known", &farm.Group{ID: "known", Name: "g"}, store.Any),
		store.Put(n.db.Tables.Instances, running.ID, running, store.Any),
		store.Put(n.db.Tables.Instances, starting.ID, starting, store.Any))
	view, err := n.Get(t.Context(), id)
	if err != nil || len(view.Groups) != 1 || view.Groups[0].Name != "g" || view.Remaining != 2 ||
		view.Usage != (api.Usage{CPU: 0.5, VMs: 1, VCPUs: 2, VRAM: 512}) {
		t.Errorf("%+v, %v", view, err)
	}
	_, err = n.Get(t.Context(), "x")
	wantRefused(t, err, farm.CodeNotFound, farm.NotFoundMessage)
}

// TestRemoval: the instances of a removed node fail, its credential is still known for a week, and
// only the node itself may disjoin.
func TestRemoval(t *testing.T) {
	n := open(t)
	is := n.join(api.JoinRequest{Name: "n", Host: "10.0.0.1"})
	inst := &farm.Instance{ID: "instance", NodeID: is.NodeID, State: farm.Started}
	n.commit(store.Put(n.db.Tables.Instances, inst.ID, inst, store.Any))
	wantRefused(t, n.Disjoin(t.Context(), is.NodeID, secret()), farm.CodeUnauthenticated, "")
	if err := n.Disjoin(t.Context(), is.NodeID, is.Credential); err != nil {
		t.Fatal(err)
	}
	n.wantEvents(farm.EventNodeUnregistered)
	if !slices.Equal(n.failed, []string{inst.ID}) || !slices.Equal(n.link.dropped, []string{is.NodeID}) {
		t.Errorf("failed %v, dropped %v", n.failed, n.link.dropped)
	}
	wantRefused(t, n.Delete(t.Context(), is.NodeID), farm.CodeNotFound, farm.NotFoundMessage)
	prune := func(age time.Duration) error {
		t.Helper()
		if err := n.Prune(t.Context(), recordtest.Term(n.db), time.Now().Add(age)); err != nil {
			t.Fatal(err)
		}
		return n.VerifyCredential(is.Credential)
	}
	if err := prune(keepRemoved - time.Minute); err != nil {
		t.Errorf("too early: %v", err)
	}
	if err := prune(keepRemoved + time.Minute); err == nil {
		t.Error("it is kept")
	}
}
