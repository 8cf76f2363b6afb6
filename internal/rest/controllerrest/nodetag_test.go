package controllerrest

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/rest"
)

// TestTagOfNodes: the tag of a list of nodes depends on its content, not on when each node polled.
func TestTagOfNodes(t *testing.T) {
	list := func(change func(*api.Node)) rest.WithETag {
		nodes := []api.Node{{NodeID: "a", State: "Active"}, {NodeID: "b", State: "Active", VMCount: 1}}
		now := time.Now()
		nodes[1].LastUpdated, nodes[1].Timestamp = now, now.Unix()
		change(&nodes[1])
		return withNodesTag(nodes).(rest.WithETag)
	}
	plain := list(func(*api.Node) {})
	for name, c := range map[string]struct {
		change func(*api.Node)
		other  bool
	}{
		"nothing": {func(*api.Node) {}, false},
		"a poll": {func(n *api.Node) {
			n.LastUpdated, n.Timestamp = n.LastUpdated.Add(time.Hour),
				n.Timestamp+3600
		}, false},
		"a state":        {func(n *api.Node) { n.State = "Offline" }, true},
		"a VM":           {func(n *api.Node) { n.VMCount++ }, true},
		"a template":     {func(n *api.Node) { n.Templates = []api.NodeTag{{UUID: "t"}} }, true},
		"its free space": {func(n *api.Node) { n.FreeDisk++ }, true},
	} {
		got := list(c.change)
		if (got.ETag != plain.ETag) != c.other || got.ETag == "" {
			t.Errorf("%s: tag %q, %q before", name, got.ETag, plain.ETag)
		}
		if nodes := got.Body.([]api.Node); nodes[1].Timestamp == 0 || nodes[1].LastUpdated.IsZero() {
			t.Errorf("%s: the list has lost its times", name)
		}
	}
	if _, isTagged := withNodesTag(make([]api.Node, maxTaggedNodes+1)).(rest.WithETag); isTagged {
		t.Error("a very long list is written twice")
	}
}

// TestNodesByTag: a filter finds the nodes that cache a tag of a template, and those that lack it.
func TestNodesByTag(t *testing.T) {
	n := api.Node{Templates: []api.NodeTag{
		{UUID: "0197", Name: "base", Tag: "v1"}, {UUID: "0198", Name: "x", Tag: "v2"},
	}}
	for text, want := range map[string]bool{
		"template:base": true, "template:0197:v1": true, "template:base:v1": true, "template:0197:v2": false,
		`-template:"0197:v2"`: true, "-template:0197:v1": false, "template:base:*": true,
	} {
		fits, err := nodeRecordFields.Parse(text)
		if err != nil || fits.Match(n, time.Now()) != want {
			t.Errorf("%s: %v, not %t", text, err, want)
		}
	}
}
