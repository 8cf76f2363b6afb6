package controllerrest_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
)

// keys returns the sorted keys of a JSON object.
func keys(t *testing.T, raw json.RawMessage) []string {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return slices.Sorted(maps.Keys(object))
}

func want(t *testing.T, what string, got, wanted any) {
	t.Helper()
	if diff := cmp.Diff(wanted, got, cmp.AllowUnexported(answer{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// explained waits until the reason of a pending instance is known.
func (c *cloud) explained(id string) {
	c.t.Helper()
	for range 1000 {
		if strings.Contains(string(c.call("GET", "/api/v1/vm?id="+id, "").Body), `"message":`) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Error("no reason for waiting in a second")
}

func TestInstanceShapes(t *testing.T) {
	c := newCloud(t)
	empty := c.call("GET", "/api/v1/vm", "")
	want(t, "empty list", string(empty.Body), "[]")
	c.wantFail(400, "id: must not be empty", "GET", "/api/v1/vm?id=", "")

	id := c.start("")
	c.explained(id)
	var list []json.RawMessage
	c.call("GET", "/api/v1/vm", "").into(t, &list)
	want(t, "list element", keys(t, list[0]), []string{"external_id", "instance_id", "name", "vm"})
	var item struct {
		InstanceID string          `json:"instance_id"`
		ExternalID json.RawMessage `json:"external_id"`
		Name       json.RawMessage `json:"name"`
		VM         json.RawMessage `json:"vm"`
	}
	if err := json.Unmarshal(list[0], &item); err != nil {
		t.Fatal(err)
	}
	want(t, "unset names", []string{string(item.ExternalID), string(item.Name)}, []string{"null", "null"})
	bare := []string{
		"anka_registry", "arch", "cr_time", "group_id", "inflight_reqid", "instance_id", "instance_state",
		"message", "owner", "phase", "progress", "tag", "ts", "usb_device", "vlan", "vmid",
	}
	want(t, "waiting instance in the list", keys(t, item.VM), bare)
	one := c.call("GET", "/api/v1/vm?id="+id, "")
	want(t, "waiting instance", keys(t, one.Body), bare)
	var inst map[string]any
	one.into(t, &inst)
	for field, value := range map[string]any{
		"instance_state": "Scheduling", "group_id": "", "vlan": "", "usb_device": "", "progress": 0.0,
		"vmid": templateID, "tag": "v1+x", "arch": "amd64", "anka_registry": "http://registry",
		"message": "there are no nodes", "phase": "queued",
	} {
		want(t, field, inst[field], value)
	}

	explained := c.call("GET", "/api/v1/vm?explain=1&id="+id, "")
	want(t, "explained", strings.HasSuffix(string(explained.Body),
		`,"explain":{"reason":"there are no nodes","counts":[],"queue":{"position":1,"waiting":1},"nodes":[],`+
			`"transitions":[]}}`), true)
	want(t, "explained keys", len(keys(t, explained.Body)), len(bare)+1)
	want(t, "not explained", c.call("GET", "/api/v1/vm?explain=0&id="+id, ""), one)
	want(t, "explain", c.call("GET", "/api/v1/vm?explain=2&id="+id, "").Message,
		"explain: must be one of 0, 1, false, true")

	full := c.start(`,"name":"n","external_id":"http://ci/job/1","metadata":{"a":"x","b":2,"c":true}`)
	c.call("GET", "/api/v1/vm?id="+full, "").into(t, &inst)
	want(t, "metadata", inst["metadata"], any(map[string]any{"a": "x", "b": 2.0, "c": true}))
	want(t, "names", []any{inst["name"], inst["external_id"]}, []any{"n", "http://ci/job/1"})
	want(t, "update", c.call("PUT", "/api/v1/vm?id="+full, `{"name":"m","metadata":{"d":1}}`),
		answer{code: 200, Status: "OK"})
	c.call("GET", "/api/v1/vm?id="+full, "").into(t, &inst)
	want(t, "updated", []any{inst["name"], inst["external_id"], inst["metadata"]},
		[]any{"m", "http://ci/job/1", map[string]any{"d": 1.0}})
}

// TestFailedInstance: a failure has a class, a step and what to do, and the request for one instance counts the
// equal ones.
func TestFailedInstance(t *testing.T) {
	c := newCloud(t)
	n := c.join()
	var ids []string
	for range 2 {
		order := n.started("")
		ids = append(ids, order.InstanceID)
		report, _ := json.Marshal(api.Report{
			Protocol: 1, NodeID: n.id, BootID: "boot", Statuses: []api.InstanceStatus{{
				InstanceID: order.InstanceID, Claim: order.Claim, No: 100, Phase: api.PhaseStopped,
				Message: "open /var/x: broken", Failure: &api.NodeFailure{Class: "disk", Step: "run"},
			}},
		})
		answer := c.call("POST", api.PathReport, string(report), "Authorization", "Bearer "+n.cred)
		want(t, "report", answer.Status, "OK")
	}
	var inst api.Instance
	c.call("GET", "/api/v1/vm?id="+ids[0], "").into(t, &inst)
	want(t, "failure", inst.Failure, &api.InstanceFailure{
		Class: "disk", Step: "run", AtNode: inst.NodeID,
		Summary:      "A disk of the node is full, or could not be read or written.",
		Remedy:       "Free space on the node, or check its disk for errors, then start the instance again.",
		SameTemplate: 2, SameTemplateNodes: 1, SameNode: 2,
	})
	want(t, "message and phase", []string{inst.Message, inst.Phase}, []string{"open /var/x: broken", "failed"})
	var list []api.InstanceItem
	c.call("GET", "/api/v1/vm?filter=failure:disk+phase:failed", "").into(t, &list)
	want(t, "filtered", len(list), 2)
	want(t, "step in the list", list[0].VM.Failure.Step, "run")
	want(t, "counts in the list", list[0].VM.Failure.SameTemplate, 0)
}

// TestStartedInstance walks an instance through the node link over real HTTP.
func TestStartedInstance(t *testing.T) {
	c := newCloud(t)
	var joined api.JoinAnswer
	join, _ := json.Marshal(api.JoinRequest{
		Protocol: 1, Token: c.Nodes.JoinToken(), Name: "n1", Host: "10.1.1.1", Arch: "arm64",
	})
	c.call("POST", api.PathJoin, string(join)).into(t, &joined)
	bearer := []string{"Authorization", "Bearer " + joined.Credential}
	poll := func(wait string, req api.PollRequest) (out api.PollAnswer) {
		req.Protocol, req.NodeID, req.BootID, req.InfoHash, req.HeldHash = 1, joined.NodeID, "boot", "h", "h"
		raw, _ := json.Marshal(req)
		c.call("POST", api.PathPoll+"?wait="+wait, string(raw), bearer...).into(t, &out)
		return out
	}
	if !poll("5s", api.PollRequest{}).NeedFull {
		t.Error("a first poll without a description must be asked for one")
	}
	poll("0s",
		api.PollRequest{Info: &api.NodeInfo{Arch: "amd64", CPUs: 4, MemoryMB: 8192, Driver: "sim"}, HasHeld: true})
	id := c.start(`,"script_monitoring":true,"startup_script":"dHJ1ZSDp/w=="`)
	order := poll("5s", api.PollRequest{}).Orders[0]
	want(t, "script in the order", string(order.Start.Script.Text), "true \xe9\xff") // not UTF-8, and kept

	for n := range 20 { // more than what is written immediately
		output := &api.ScriptOutput{Stdout: strings.Repeat("line\n", n), Stderr: "hm"}
		running, _ := json.Marshal(api.Report{
			Protocol: 1, NodeID: joined.NodeID, BootID: "boot", Statuses: []api.InstanceStatus{{
				InstanceID: id, Claim: order.Claim, No: int64(n + 1), Phase: api.PhaseRunning, ScriptOutput: output,
			}},
		})
		want(t, "report", c.call("POST", api.PathReport, string(running), bearer...).Status, "OK")
		var now api.Instance
		c.call("GET", "/api/v1/vm?id="+id, "").into(t, &now)
		want(t, "output of the running script", now.ScriptOutput, output)
		var list []api.InstanceItem
		c.call("GET", "/api/v1/vm", "").into(t, &list)
		want(t, "output in the list", list[0].VM.ScriptOutput != nil, false)
	}
	report, _ := json.Marshal(api.Report{
		Protocol: 1, NodeID: joined.NodeID, BootID: "boot",
		Statuses: []api.InstanceStatus{{
			InstanceID: id, Claim: order.Claim, No: 21, Phase: api.PhaseScriptOK,
			Script: &api.ScriptStatus{Stdout: "hi"},
			VM: &api.NodeVM{
				UUID: "u", Name: order.Start.VMName, Status: "running", CPUs: 2, MemoryMB: 1024, IP: "10.0.2.15",
				HostIP: "10.1.1.1",
				Ports:  []api.NodePortRule{{Name: "ssh", GuestPort: 22, HostPort: 10000, Protocol: "tcp"}},
			},
		}},
	})
	want(t, "report", c.call("POST", api.PathReport, string(report), bearer...).Status, "OK")
	var inst api.Instance
	one := c.call("GET", "/api/v1/vm?id="+id, "")
	one.into(t, &inst)
	want(t, "state", inst.InstanceState, "Started")
	want(t, "script", inst.StartupScript, &api.ScriptResult{Stdout: "hi"})
	want(t, "keys", keys(t, one.Body), []string{
		"anka_registry", "arch", "cr_time", "group_id", "instance_id", "instance_state", "node_id", "owner", "phase",
		"progress", "started",
		"startup_script", "tag", "ts", "usb_device", "vlan", "vmid", "vminfo",
	})
	want(t, "ports", inst.VMInfo.PortForwarding,
		[]api.Port{{GuestPort: 22, HostPort: 10000, Protocol: "tcp", Name: "ssh"}})
	want(t, "vminfo",
		[]string{
			inst.VMInfo.UUID, inst.VMInfo.Status, inst.VMInfo.IP, inst.VMInfo.HostIP, inst.VMInfo.NodeID,
			inst.VMInfo.RAM,
		},
		[]string{"u", "running", "10.0.2.15", "10.1.1.1", joined.NodeID, "1G"})

	for _, path := range []string{"/api/v1/node", "/api/v1/node?id=" + joined.NodeID} {
		var nodes []api.Node
		c.call("GET", path, "").into(t, &nodes)
		n := nodes[0]
		want(t, path, []any{len(nodes), n.NodeID, n.NodeName, n.State, n.HostArch, n.Capacity, n.CapacityMode, n.RAM},
			[]any{1, joined.NodeID, "n1", "Active", "amd64", 2, "number", 8})
	}
	want(t, "node removed", c.call("DELETE", "/api/v1/node", `{"node_id":"`+joined.NodeID+`"}`).Status, "OK")
	want(t, "poll of a removed node",
		string(c.call("POST", api.PathPoll, `{"protocol":1,"node_id":"`+joined.NodeID+`","boot_id":"b"}`,
			bearer...).Body), `{"removed":true}`)
}

func TestOtherShapes(t *testing.T) {
	c := newCloud(t)
	want(t, "nodes", string(c.call("GET", "/api/v1/node", "").Body), "[]")
	want(t, "disk", string(c.call("GET", "/api/v1/registry/disk", "").Body), `{"free":3,"total":4}`)
	var status map[string]string
	c.call("GET", "/api/v1/status", "").into(t, &status)
	want(t, "status", status, map[string]string{
		"status": "Running", "version": "1.2.3-abc", "registry_address": "http://registry",
		"registry_status": "Running", "license": "enterprise plus",
	})
	want(t, "short list", string(c.call("GET", "/api/v1/registry/vm?apiVer=v1", "").Body),
		`[{"id":"`+templateID+`","name":"base"}]`)
	var list []json.RawMessage
	c.call("GET", "/api/v1/registry/vm", "").into(t, &list)
	want(t, "template", keys(t, list[0]), []string{"arch", "id", "last_pull", "last_push", "name", "size"})
	one := c.call("GET", "/api/v1/registry/vm?id="+templateID, "")
	want(t, "template detail", keys(t, one.Body),
		[]string{"arch", "id", "last_pull", "last_push", "name", "size", "versions"})
	for _, path := range []string{"/livez", "/readyz"} {
		want(t, path, c.call("GET", path, ""), answer{code: 200, Status: "OK"})
	}
	want(t, "unknown route", c.call("GET", "/api/v1/nothing", "").code, 404)
	for _, path := range []string{
		"/api/v1//vm", "//api/v1/vm", "/api/v1/./vm", "/api/../api/v1/vm", "/api/v1/vm/", "/", "//",
	} {
		a := c.call("POST", path, `{"vmid":"`+templateID+`"}`)
		want(t, path, []any{a.code, a.Status}, []any{404, "FAIL"})
	}
	want(t, "unknown method", c.call("PATCH", "/api/v1/vm", "").code, 405)
	want(t, "wrong join token", c.call("POST", api.PathJoin, `{"protocol":1,"token":"x","name":"n"}`).code, 401)
}
