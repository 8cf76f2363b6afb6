package controllerrest_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestNodePeer: a node shows where others read versions from it, and how many bytes it exchanged, whatever it claims.
func TestNodePeer(t *testing.T) {
	c := newCloud(t)
	n := c.join()
	poll := func(info api.NodeInfo, usage api.Usage) *api.NodePeer {
		t.Helper()
		info.Arch, info.OS, info.CPUs, info.MemoryMB = "amd64", "linux", 4, 8192
		if _, err := c.Link.Poll(t.Context(), n.cred, api.PollRequest{
			Protocol: api.LinkProtocol, NodeID: n.id, BootID: "boot", HeldHash: "h",
			InfoHash: strconv.Itoa(len(info.PeerAddress)), Info: &info, Usage: &usage,
		}, 0); err != nil {
			t.Fatal(err)
		}
		var nodes []api.Node
		c.call("GET", "/api/v1/node?id="+n.id, "").into(t, &nodes)
		return nodes[0].Peer
	}
	if p := poll(api.NodeInfo{}, api.Usage{PeerServed: 7}); p != nil {
		t.Errorf("a node that is no peer: %+v", p)
	}
	key := strings.Repeat("0a", 32)
	got := poll(api.NodeInfo{PeerAddress: ":8093", PeerKey: key}, api.Usage{PeerServed: 7, PeerFetched: -1})
	if got == nil || *got != (api.NodePeer{Address: ":8093", ServedBytes: 7}) {
		t.Errorf("a peer: %+v", got)
	}
	if p := poll(api.NodeInfo{PeerAddress: "\x1b:8093", PeerKey: key}, api.Usage{}); p != nil {
		t.Errorf("a node with an address that is none: %+v", p)
	}
}
