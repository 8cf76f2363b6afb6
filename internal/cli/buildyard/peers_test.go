package buildyard

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/cli/buildnode"
)

// TestNodesReadFromNodes: a node reads a version from the node that has it, which the controller has named to it.
func TestNodesReadFromNodes(t *testing.T) {
	y := newYard(t)
	pushed := y.push("", "v1", y.disk(1, 8))
	distribute := func() {
		t.Helper()
		id := y.distribute(map[string]any{"template_id": pushed.ID})
		y.await("the distribution", func() bool {
			for _, s := range y.distribution(id).Status {
				if !s.Status {
					return false
				}
			}
			return true
		})
	}
	start := func() *buildnode.Node {
		return runNode(t, y.service, t.TempDir(), buildnode.NodeOptions{
			Driver: buildnode.DriverSim, MetricsAddr: "127.0.0.1:0",
			Peers: buildnode.PeerOptions{ListenAddr: "127.0.0.1:0", Rate: "0"},
		})
	}
	bytesOf := func(n *buildnode.Node, metric string) float64 {
		_, text := get(t, n.MetricsURL())
		return parseMetrics(t, text)[metric].GetMetric()[0].GetCounter().GetValue()
	}
	active := func(count int) {
		y.await("the nodes", func() bool {
			list := y.list()
			return len(list) == count && strings.Contains(list[0].State+list[count-1].State, "ActiveActive")
		})
	}
	first := start()
	active(1)
	distribute()
	y.await("the controller to know what the first node has", func() bool {
		var nodes []map[string]any
		y.get("/api/v1/registry/vm/nodes?id="+pushed.ID, &nodes)
		return len(nodes) > 0
	})
	second := start()
	active(2)
	distribute()
	served, fetched := bytesOf(first, "buildyard_node_peer_served_bytes_total"),
		bytesOf(second, "buildyard_node_peer_fetched_bytes_total")
	t.Logf("served %.0f bytes, fetched %.0f", served, fetched)
	if fetched == 0 || served < fetched {
		t.Errorf("the first node served %.0f bytes, the second read %.0f", served, fetched)
	}
	y.await("the bytes at the nodes", func() bool {
		var sent, read int64
		for _, n := range y.list() {
			if n.Peer == nil || n.Peer.Address == "" {
				t.Fatalf("node %s shows no peer: %+v", n.NodeName, n.Peer)
			}
			sent, read = sent+n.Peer.ServedBytes, read+n.Peer.FetchedBytes
		}
		return sent > 0 && read > 0
	})
	if code, page := get(t, y.service.URL()+"/nodes/"+y.list()[0].NodeID); code != 200 ||
		!strings.Contains(page, "serves versions at") {
		t.Errorf("the page of a node answers %d, and shows nothing about peers", code)
	}
}
