package controllerrest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

// joined adds a node that has described itself, and returns its ID and the credential of its agent.
func (c *cloud) joined(name string) (id string, bearer []string) {
	c.t.Helper()
	var answer api.JoinAnswer
	join, _ := json.Marshal(api.JoinRequest{
		Protocol: 1, Token: c.Nodes.JoinToken(), Name: name, Host: "10.1.1.1", Arch: "amd64",
	})
	c.call("POST", api.PathJoin, string(join)).into(c.t, &answer)
	bearer = []string{"Authorization", "Bearer " + answer.Credential}
	c.polls(answer.NodeID, bearer, api.PollRequest{
		Info: &api.NodeInfo{
			Arch: "amd64", OS: "linux", CPUs: 4, MemoryMB: 8192, Driver: "sim", Hypervisor: "1.0", Accelerator: "sim",
			AgentVersion: "1.2.3",
			DiskSize:     100, FreeDisk: 40, CacheUsage: 7, License: "enterprise", Expires: "2999-01-01",
			Templates: []api.NodeTemplate{{ID: "t", Name: "base", Tag: "v1", ContentID: "c"}},
		},
		HasHeld: true, Usage: &api.Usage{CPU: 7.5, RAM: 0.25, VMs: 2, VCPUs: 3, VRAM: 512},
	})
	return answer.NodeID, bearer
}

func (c *cloud) polls(id string, bearer []string, req api.PollRequest) {
	c.t.Helper()
	req.Protocol, req.NodeID, req.BootID, req.InfoHash, req.HeldHash = 1, id, "boot", "h", "h"
	raw, _ := json.Marshal(req)
	if a := c.call("POST", api.PathPoll+"?wait=0s", string(raw), bearer...); a.Status != "OK" {
		c.t.Fatalf("poll: %+v", a)
	}
}

func (c *cloud) group(fields string) api.Group {
	c.t.Helper()
	var g api.Group
	c.call("POST", "/api/v1/group", `{`+fields+`}`).into(c.t, &g)
	return g
}

// wantFail requires a refusal with exactly this message.
func (c *cloud) wantFail(code int, message, method, path, body string) {
	c.t.Helper()
	if a := c.call(method, path, body); a.code != code || a.Status != "FAIL" || a.Message != message {
		c.t.Errorf("%s %s %s: %d %s %q, want %d %q", method, path, body, a.code, a.Status, a.Message, code, message)
	}
}

func (c *cloud) wantOK(method, path, body string) {
	c.t.Helper()
	if a := c.call(method, path, body); a.code != http.StatusOK || a.Status != "OK" || a.Message != "" ||
		a.Body != nil {
		c.t.Errorf("%s %s %s: %+v", method, path, body, a)
	}
}

func TestGroupRoutes(t *testing.T) {
	c := newCloud(t)
	want(t, "no groups", string(c.call("GET", "/api/v1/group", "").Body), "[]")
	a := c.group(`"name":" linux ","description":"x86"`)
	raw := c.call("POST", "/api/v1/group", `{"name":"mac","description":null,"fallback_group_id":"`+a.ID+`"}`+"\n",
		"Content-Type", "text/plain")
	want(t, "keys", keys(t, raw.Body), []string{"description", "fallback_group_id", "id", "name"})
	var b api.Group
	raw.into(t, &b)
	want(t, "group", b, api.Group{ID: b.ID, Name: "mac", FallbackGroupID: &a.ID})
	want(t, "first group", a, api.Group{ID: a.ID, Name: "linux", Description: "x86"})

	c.wantOK("PUT", "/api/v1/group?id="+b.ID, `{"name":null,"description":"","fallback_group_id":""}`)
	c.wantOK("PUT", "/api/v1/group", `{"id":"`+b.ID+`","description":"M4"}`)
	var list []api.Group
	c.call("GET", "/api/v1/group", "").into(t, &list)
	b.Description = "M4"
	want(t, "list", list, []api.Group{a, b})
	list = nil
	c.call("GET", "/api/v1/group?filter=fallback:"+a.ID+"+description:m4", "").into(t, &list)
	want(t, "filtered", list, []api.Group{b})
	c.wantOK("PUT", "/api/v1/group?id="+b.ID+"&fallback_group_id=none", `{"description":"  ","name":"MAC"}`)
	list = nil
	c.call("GET", "/api/v1/group", "").into(t, &list)
	want(t, "cleared", list[1], api.Group{ID: b.ID, Name: "MAC"})
	c.wantOK("PUT", "/api/v1/group?id="+b.ID, `{"fallback_group_id":"`+a.ID+`"}`)
	c.wantOK("PUT", "/api/v1/group?id="+b.ID, `{"fallback_group_id":null}`)
	list = nil
	c.call("GET", "/api/v1/group", "").into(t, &list)
	want(t, "cleared by null", list[1], api.Group{ID: b.ID, Name: "MAC"})

	for _, tc := range []struct {
		code                       int
		message, method, id, field string
	}{
		{400, "name: is required", "POST", "", `"description":"x"`},
		{400, "name: is required", "POST", "", `"name":""`},
		{400, "name: must not be empty", "POST", "", `"name":"  "`},
		{400, "name: must have at most 255 bytes", "POST", "", `"name":"` + strings.Repeat("x", 256) + `"`},
		{400, "name: must be a string", "POST", "", `"name":5`},
		{400, "name: must not have the form of a group ID (UUID)", "POST", "", `"name":"` + a.ID + `"`},
		{400, "description: must have at most 1024 bytes", "POST", "", `"name":"x","description":"` +
			strings.Repeat("x", 1025) + `"`},
		{400, "fallback_group_id: must be a string", "POST", "", `"name":"x","fallback_group_id":[]`},
		{200, "Not found", "POST", "", `"name":"x","fallback_group_id":"linux"`},
		{200, `Node group "linux" already exists; choose another name`, "POST", "", `"name":"linux"`},
		{
			200, "fallback_group_id cannot be set: the fallback groups would form a cycle: linux -> linux", "PUT", a.ID,
			`"fallback_group_id":"` + a.ID + `"`,
		},
		{200, `Node group "linux" already exists; choose another name`, "PUT", b.ID, `"name":"linux"`},
		{200, "Not found", "PUT", "linux", `"name":"y"`},
		{400, "id: is required", "PUT", "", `"name":"y"`},
		{400, "id: is required", "DELETE", "", ``},
		{200, "Not found", "DELETE", templateID, ``},
	} {
		path := "/api/v1/group"
		if tc.id != "" {
			path += "?id=" + tc.id
		}
		c.wantFail(tc.code, tc.message, tc.method, path, `{`+tc.field+`}`)
	}
	c.wantOK("DELETE", "/api/v1/group", `{"id":"`+b.ID+`"}`)
	c.wantOK("DELETE", "/api/v1/group?id="+a.ID, "")
	want(t, "all gone", string(c.call("GET", "/api/v1/group", "").Body), "[]")
}

func TestNodeGroupRoutes(t *testing.T) {
	c := newCloud(t)
	node, _ := c.joined("one")
	a := c.group(`"name":"a"`)
	b := c.group(`"name":"b","fallback_group_id":"` + a.ID + `"`)
	ids := func(groups ...string) string {
		raw, _ := json.Marshal(map[string]any{"group_ids": groups, "node_ids": []string{node}})
		return string(raw)
	}
	shown := func() []api.Group {
		var nodes []api.Node
		c.call("GET", "/api/v1/node?id="+node, "").into(t, &nodes)
		return nodes[0].Groups
	}
	c.wantOK("POST", "/api/v1/node/group", ids(b.ID, a.ID))
	want(t, "groups", shown(), []api.Group{b, a})
	c.wantOK("DELETE", "/api/v1/node/group", ids(a.ID))
	want(t, "groups", shown(), []api.Group{b})
	c.wantOK("POST", "/api/v1/node/group?node_ids="+node+"&group_ids="+a.ID+"&group_ids="+b.ID, "")
	want(t, "groups", shown(), []api.Group{b, a})
	for _, method := range []string{"POST", "DELETE"} {
		for body, message := range map[string]string{
			`{"group_ids":["` + a.ID + `"]}`:                   "node_ids: is required",
			`{"node_ids":["` + node + `"]}`:                    "group_ids: is required",
			`{"node_ids":["x","y"],"group_ids":["g"]}`:         "node_ids: must have exactly one ID",
			`{"node_ids":[],"group_ids":["g"]}`:                "node_ids: must have exactly one ID",
			`{"node_ids":["x"],"group_ids":[]}`:                "group_ids: must have 1 to 64 IDs",
			`{"node_ids":"x","group_ids":["g"]}`:               "node_ids: must be an array of strings",
			`{"node_ids":["x"],"group_ids":{"a":1}}`:           "group_ids: must be an array of strings",
			ids(strings.Split(strings.Repeat("x", 65), "")...): "group_ids: must have 1 to 64 IDs",
		} {
			c.wantFail(400, message, method, "/api/v1/node/group", body)
		}
		c.wantFail(200, "Not found", method, "/api/v1/node/group", `{"node_ids":["x"],"group_ids":["`+a.ID+`"]}`)
		c.wantFail(200, "Not found", method, "/api/v1/node/group", ids("b"))
	}
	c.wantFail(200, "Group b not found", "POST", "/api/v1/vm", `{"vmid":"`+templateID+`","group_id":"b"}`)
	c.wantFail(200, "Node b not found", "POST", "/api/v1/vm", `{"vmid":"`+templateID+`","node_id":"b"}`)
	id := c.start(`,"group_id":"` + b.ID + `"`)
	var inst api.Instance
	c.call("GET", "/api/v1/vm?id="+id, "").into(t, &inst)
	want(t, "group of the instance", inst.GroupID, b.ID)
}

func TestNodeConfigRoute(t *testing.T) {
	c := newCloud(t)
	node, bearer := c.joined("one")
	config := func(fields string) string { return `{"node_id":"` + node + `"` + fields + `}` }
	show := func() (n api.Node) {
		var nodes []api.Node
		c.call("GET", "/api/v1/node?id="+node, "").into(t, &nodes)
		return nodes[0]
	}
	plain := c.call("GET", "/api/v1/node?id="+node, "")
	var raw []json.RawMessage
	plain.into(t, &raw)
	want(t, "keys", keys(t, raw[0]), []string{
		"agent_version", "anka_disk_usage", "anka_version", "capacity", "capacity_mode", "cpu_count", "cpu_util",
		"disk_size",
		"free_disk_space", "groups", "host_arch", "ip_address", "last_updated", "node_id", "node_name", "ram",
		"ram_override",
		"ram_util", "slots", "state", "state_since", "templates", "timestamp", "usb_devices", "vcpu_count",
		"vcpu_override", "vm_count", "vram",
	})
	first := show()
	want(t, "seen", time.Since(first.LastUpdated) < time.Minute && first.Timestamp == first.LastUpdated.Unix(), true)
	first.LastUpdated, first.Timestamp, first.StateSince = time.Time{}, 0, time.Time{}
	want(t, "node", first, api.Node{
		NodeID: node, NodeName: "one", CPUCount: 4, RAM: 8, CPUUtil: 1, RAMUtil: 0.25,
		IPAddress: "10.1.1.1", State: "Active", Capacity: 2, Groups: []api.Group{},
		AnkaVersion: api.ProductVersion{
			Product: "sim", Version: "1.0", Build: "sim", License: "enterprise", Expires: "2999-01-01",
		},
		CapacityMode: "number", DiskSize: 100, FreeDisk: 40, DiskUsage: 7, HostArch: "amd64",
		Templates: []api.NodeTag{{UUID: "t", Name: "base", Tag: "v1"}}, AgentVersion: "1.2.3",
		Slots: &api.Slots{Capacity: 2, Free: 2},
	})

	c.wantOK("POST", "/api/v1/node/config", config(`,"max_vm_count":"7","name":"first","host":"b1","capacity_mode":"resource",
		"vcpu_override":12,"ram_override":4096,"disable_central_logging":true,"drain_mode":true,"drain_reason":"new disk","drain_deadline":"2h"`))
	n := show()
	want(t, "configured",
		[]any{
			n.Capacity, n.NodeName, n.IPAddress, n.CapacityMode, n.VCPUOverride, n.RAMOverride, n.NoCentralLog,
			n.State, n.StateReason,
		},
		[]any{7, "first", "b1", "resource", 12, 4096, true, "Drain Mode", "new disk"})
	want(t, "drain",
		[]any{
			n.Drain.Reason, n.Drain.Remaining, n.Drain.Deadline.Sub(n.Drain.Since),
			n.Drain.Since.Equal(n.StateSince),
		},
		[]any{"new disk", 0, 2 * time.Hour, true})
	c.wantOK("POST", "/api/v1/node/config",
		config(`,"max_vm_count":null,"name":"","drain_mode":null,"drain_deadline":0`))
	want(t, "deadline lifted", show().Drain.Deadline.IsZero(), true)
	c.wantOK("POST", "/api/v1/node/config?node_id="+node+"&drain_mode=false&host=auto", "")
	c.polls(node, bearer, api.PollRequest{Host: "10.1.1.2"})
	n = show()
	want(t, "after the drain", []any{n.State, n.Drain == nil, n.StateReason, n.IPAddress, n.Capacity},
		[]any{"Active", true, "", "10.1.1.2", 7})

	hint := c.call("POST", "/api/v1/node/config", config(`,"ram_override":16`))
	want(t, "hint", []any{hint.Status, hint.Message}, []any{"OK", "ram_override is in MiB, unlike ram, which is in " +
		"GiB: all VMs of the node may have 16 MiB together"})

	for fields, message := range map[string]string{
		`,"max_vm_count":0`:        "max_vm_count: must be an integer between 1 and 1000",
		`,"max_vm_count":1001`:     "max_vm_count: must be an integer between 1 and 1000",
		`,"vcpu_override":-1`:      "vcpu_override: must be an integer between 0 and 4096",
		`,"ram_override":16777217`: "ram_override: must be an integer between 0 and 16777216",
		`,"capacity_mode":"cpu"`:   "capacity_mode: must be one of number, resource",
		`,"name":" "`:              "name: must not be empty",
		`,"host":"a b"`: "host: must be an address or a host name, or auto for the " +
			"one that the node reports",
		`,"drain_mode":"perhaps"`:                "drain_mode: must be true or false",
		`,"disable_central_logging":1`:           "disable_central_logging: must be true or false",
		`,"drain_mode":false,"drain_reason":"x"`: "drain_reason: requires drain_mode true",
		`,"drain_mode":false,"drain_deadline":5`: "drain_deadline: requires drain_mode true",
		`,"drain_mode":true,"drain_deadline":"31d"`: "drain_deadline: must be seconds or a duration such as 90s " +
			"or 2h, at most 720h0m0s",
		`,"drain_mode":true,"drain_deadline":999999999`: "drain_deadline: must be seconds or a duration such as 90s " +
			"or 2h, at most 720h0m0s",
	} {
		c.wantFail(400, message, "POST", "/api/v1/node/config", config(fields))
	}
	c.wantFail(400, "node_id: is required", "POST", "/api/v1/node/config", `{"max_vm_count":1}`)
	c.wantFail(200, "Not found", "POST", "/api/v1/node/config", `{"node_id":"one"}`)
	c.wantFail(200, "ram_override cannot be 9000 MiB: node first has 8192 MiB of memory", "POST", "/api/v1/node/config",
		config(`,"ram_override":9000`))
	c.wantFail(200,
		"vcpu_override counts in the capacity mode resource only, and node first is in the mode number; set "+
			"capacity_mode to resource as well",
		"POST", "/api/v1/node/config", config(`,"vcpu_override":1,"capacity_mode":"number"`))
	c.wantFail(200, "Node first is not drained: drain_reason and a drain deadline require drain_mode true",
		"POST", "/api/v1/node/config", config(`,"drain_reason":"x"`))

	c.wantFail(200, "Not found", "GET", "/api/v1/node?id=one", "")
	c.wantFail(400, "node_id: is required", "DELETE", "/api/v1/node", "")
	c.wantFail(200, "Not found", "DELETE", "/api/v1/node", `{"node_id":"one"}`)
	other, _ := c.joined("two")
	c.wantOK("DELETE", "/api/v1/node?node_id="+node, "")
	c.wantOK("DELETE", "/api/v1/node", `{"node_id":"`+other+`"}`+"\n")
	want(t, "no nodes", string(c.call("GET", "/api/v1/node", "").Body), "[]")
}
