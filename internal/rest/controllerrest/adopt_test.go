package controllerrest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

func TestAdopt(t *testing.T) {
	c := newCloud(t)
	n := c.join()
	poll := api.PollRequest{
		Protocol: api.LinkProtocol, NodeID: n.id, BootID: "boot", InfoHash: "i", Info: &api.NodeInfo{Arch: "amd64"},
		HeldHash: "h", HasHeld: true,
		Held: []api.InventoryItem{{
			InstanceID: "0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22", Claim: "c",
			VMID: "0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22",
		}},
	}
	if _, err := c.Link.Poll(t.Context(), n.cred, poll, 0); err != nil {
		t.Fatal(err)
	}
	var list []api.OrphanedVM
	c.call("GET", "/api/v1/node/adopt?node="+n.id, "").into(t, &list)
	if len(list) != 1 || list[0].ID != "0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22" || list[0].NodeID != n.id ||
		list[0].Fate != api.FateUndecided || time.Since(list[0].Since) > time.Minute {
		t.Errorf("list = %+v", list)
	}
	var nodes []api.Node
	c.call("GET", "/api/v1/node?id="+n.id, "").into(t, &nodes)
	if nodes[0].UnknownVMs != 1 {
		t.Errorf("node = %+v", nodes[0])
	}
	var done []api.OrphanOutcome
	c.call("POST", "/api/v1/node/adopt", `{"node":"`+n.id+`","action":"keep"}`).into(t, &done)
	if len(done) != 1 || done[0].Outcome != "refused" || !strings.Contains(done[0].Why, "has not yet reported") {
		t.Errorf("kept: %+v", done)
	}
	c.call("POST", "/api/v1/node/adopt",
		`{"node":"`+n.id+`","action":"remove","vms":["0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22"]}`).into(t, &done)
	if len(done) != 1 || done[0].Outcome != "removed" {
		t.Errorf("removed: %+v", done)
	}
	c.call("GET", "/api/v1/node/adopt", "").into(t, &list)
	if len(list) != 1 || list[0].Fate != api.FateReleased {
		t.Errorf("list = %+v", list)
	}
	for body, says := range map[string]string{
		`{"action":"keep"}`: "node: is required", `{"node":"x"}`: "action: is required",
		`{"node":"x","action":"eat"}`:           "action: must be one of",
		`{"node":"x","action":"keep","vms":[]}`: "vms: must have 1 to 500 elements",
		`{"node":"x","action":"keep","vms":3}`:  "vms: must be",
	} {
		if a := c.call("POST", "/api/v1/node/adopt", body); a.code != 400 || !strings.Contains(a.Message, says) {
			t.Errorf("%s: %d %q", body, a.code, a.Message)
		}
	}
	for _, path := range []string{"POST /api/v1/node/adopt", "GET /api/v1/node/adopt?node=nowhere"} {
		method, path, _ := strings.Cut(path, " ")
		if a := c.call(method, path, `{"node":"nowhere","action":"keep"}`); a.code != 200 || a.Message != "Not found" {
			t.Errorf("%s: %d %q", method, a.code, a.Message)
		}
	}
}
