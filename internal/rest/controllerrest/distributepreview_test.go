package controllerrest_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestDistributeDryRun: a dry run counts the nodes of a selection and changes nothing.
func TestDistributeDryRun(t *testing.T) {
	c := newCloud(t)
	var group api.Group
	c.call("POST", "/api/v1/group", `{"name":"ci"}`).into(t, &group)
	for name, info := range map[string]*api.NodeInfo{
		"cached": {Arch: "amd64", Driver: "sim", Templates: []api.NodeTemplate{
			{ID: templateID, Name: "base", Tag: "v1+x", ContentID: "c0"},
		}},
		"small": {Arch: "amd64", Driver: "sim", DiskSize: 9, FreeDisk: 0},
		"arm":   {Arch: "arm64", Driver: "sim"},
		"away":  nil,
	} {
		node := c.memberNode(name)
		if info != nil {
			c.polled(node, info, 0)
		}
		if name == "small" || name == "arm" {
			c.call("POST", "/api/v1/node/group", `{"node_ids":["`+node.NodeID+`"],"group_ids":["`+group.ID+`"]}`)
		}
	}
	preview := func(selection string) api.DistributePreview {
		t.Helper()
		var got api.DistributeAnswer
		c.call("POST", distributePath, `{"template_id":"`+templateID+`","dry_run":true`+selection+`}`).into(t, &got)
		if got.RequestID != "" || got.Preview == nil {
			t.Fatalf("%s: %+v", selection, got)
		}
		return *got.Preview
	}
	all := preview("")
	if all.Nodes != 4 || all.Cached != 1 || all.Unsuitable != 1 || all.ToPull != 2 || all.Tag != "v1+x" {
		t.Errorf("all: %+v", all)
	}
	if got := preview(`,"filter":"name:small,cached"`); got.Nodes != 2 || got.Cached != 1 || got.ToPull != 1 {
		t.Errorf("a filter: %+v", got)
	}
	if got := preview(`,"group_ids":["` + group.ID + `"]`); got.Nodes != 2 || got.Unsuitable != 1 || got.ToPull != 1 {
		t.Errorf("a group: %+v", got)
	}
	if got := preview(`,"filter":"name:nothing"`); got.Nodes != 0 || got.TotalBytes != 0 {
		t.Errorf("no node: %+v", got)
	}
	if a := c.call("GET", distributePath, ""); string(a.Body) != "[]" {
		t.Errorf("a dry run has begun something: %s", a.Body)
	}
	a := c.call("POST", distributePath, `{"template_id":"`+templateID+`","filter":"state:strted"}`)
	if a.code != 400 || !strings.HasPrefix(a.Message, "filter: at 7: unknown state") {
		t.Errorf("an unknown state: %d %s", a.code, a.Message)
	}
	if a := c.call("GET", distributePath+"?filter="+url.QueryEscape("state:open"), ""); string(a.Body) != "[]" {
		t.Errorf("a refused request has begun something: %s", a.Body)
	}
}
