package controllerrest_test

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestDiskFill: what a node reports of an instance's disks is shown with the instance and on the node, until the node
// reports that all is there.
func TestDiskFill(t *testing.T) {
	c := newCloud(t)
	n := c.join()
	o := n.started(`,"name":"job-1"`)
	report := func(fills map[string]api.DiskFill) {
		t.Helper()
		if _, err := c.Link.Poll(t.Context(), n.cred, api.PollRequest{
			Protocol: api.LinkProtocol, NodeID: n.id, BootID: "boot", InfoHash: "i", HeldHash: "h", Usage: &api.Usage{},
			Fills: fills,
		}, 0); err != nil {
			t.Fatal(err)
		}
	}
	shown := func() (list []*api.DiskFill) {
		t.Helper()
		var explained struct{ Explain api.Explanation }
		c.call("GET", "/api/v1/vm?explain=1&id="+o.InstanceID, "").into(t, &explained)
		var nodes []api.Node
		c.call("GET", "/api/v1/node?id="+n.id, "").into(t, &nodes)
		return []*api.DiskFill{explained.Explain.Fill, nodes[0].Slots.Holders[0].Fill}
	}
	report(map[string]api.DiskFill{
		o.InstanceID: {
			Fraction: 7, Bytes: 43, Total: 100, Rate: -1, Waiting: 12,
			Problem: "connection\x1b refused" + strings.Repeat("x", 999),
		},
		"another": {},
	})
	for _, f := range shown() {
		if f == nil || f.Fraction != 1 || f.Bytes != 43 || f.Total != 100 || f.Rate != 0 || f.Waiting != 12 ||
			!strings.HasPrefix(f.Problem, "connection") || len(f.Problem) > 255 || strings.Contains(f.Problem, "\x1b") {
			t.Errorf("%+v", f)
		}
	}
	report(nil)
	for _, f := range shown() {
		if f != nil {
			t.Errorf("after all is on the node: %+v", f)
		}
	}
}

// TestSearchByReportedMAC: an instance is found by the MAC address that its node reports.
func TestSearchByReportedMAC(t *testing.T) {
	c := newCloud(t)
	n := c.join()
	o := n.started(`,"name":"job-1"`)
	n.say(o, nil)
	if found := c.searched("52:54:00:00:00:01"); found.Totals["instance"] != 1 || found.Matches[0].ID != o.InstanceID {
		t.Errorf("%+v", found)
	}
}
