package controllerrest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/filter"
)

// narrow sees the node and the template called seen.
func narrow() visibility {
	see := func(id string) bool { return id == "seen" }
	return visibility{isRestricted: true, seesNode: see, seesTemplate: see}
}

// TestBothShown: an event of a node and a template is visible to callers that may list both.
func TestBothShown(t *testing.T) {
	for _, c := range []struct {
		node, template string
		want           bool
	}{
		{"", "", true},
		{"seen", "", true},
		{"other", "", false},
		{"", "seen", true},
		{"", "other", false},
		{"seen", "other", false},
		{"other", "seen", false},
		{"seen", "seen", true},
	} {
		if got := narrow().seesBoth(c.node, c.template); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestAlarmsShown: an alarm that names a node is visible to callers that may list it.
func TestAlarmsShown(t *testing.T) {
	list := []api.Alarm{
		{Name: api.AlarmNodeDisk, Subject: "seen"},
		{Name: api.AlarmNodeDisk, Subject: "other"},
		{Name: api.AlarmNodeClock, Subject: "other"},
		{Name: api.AlarmOrphans, Subject: "other"},
		{Name: api.AlarmOrphans},
		{Name: api.AlarmOutage},
		{Name: api.AlarmEvents, Subject: "target"},
		{Name: api.AlarmQueueGrows},
		{Name: api.AlarmQueueGrows, Subject: "group"},
	}
	all := visibility{seesNode: always, seesTemplate: always, listsNodes: true, listsGroups: true}
	if got := all.visibleAlarms(slices.Clone(list)); len(got) != len(list) {
		t.Errorf("a caller that sees everything: %+v", got)
	}
	some := narrow()
	some.listsNodes = true
	want := []api.Alarm{list[0], list[4], list[6], list[7]}
	if got := some.visibleAlarms(slices.Clone(list)); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	// Without rights on single nodes, the permission to list them decides.
	none := visibility{seesNode: always, seesTemplate: always}
	want = []api.Alarm{list[4], list[6], list[7]}
	if got := none.visibleAlarms(slices.Clone(list)); !slices.Equal(got, want) {
		t.Errorf("without list_nodes: %+v, want %+v", got, want)
	}
}

// TestPastShown: the history and its filter name no node that may not be listed.
func TestPastShown(t *testing.T) {
	for node, want := range map[string]string{"seen": "mac-1", "other": ""} {
		p := &farm.InstanceHistory{NodeID: node, NodeName: "mac-1"}
		if got := historyToAPI(p, narrow()); got.NodeName != want || got.NodeID != node {
			t.Errorf("on %s: %q, %q", node, got.NodeName, got.NodeID)
		}
		finds(t, narrow().pastFields(), p, map[string]bool{"node=mac-1": want != "", "node=" + node: true})
		finds(t, pastFields, p, map[string]bool{"node=mac-1": true})
		l := instances.View{Instance: &farm.Instance{NodeID: node, NodeName: "mac-1"}}
		finds(t, narrow().vmFields(vmFields(nil)), l, map[string]bool{"node=mac-1": want != "", "node=" + node: true})
	}
}

func finds[T any](t *testing.T, table filter.Table[T], v T, want map[string]bool) {
	t.Helper()
	for text, want := range want {
		f, err := table.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Match(v, time.Now()); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// TestHiddenTemplates: no filter finds a template by a name that may not be seen.
func TestHiddenTemplates(t *testing.T) {
	for id, seen := range map[string]bool{"seen": true, "other": false} {
		want := map[string]bool{"template=ios": seen, "template:io*": seen, "template=" + id: true}
		l := instances.View{Instance: &farm.Instance{Template: farm.TemplateRef{ID: id, Name: "ios"}}}
		finds(t, narrow().vmFields(vmFields(nil)), l, want)
		finds(t, narrow().cacheJobFields(), &farm.CacheJob{Template: farm.TemplateRef{ID: id, Name: "ios"}},
			map[string]bool{"template=ios": seen, "name:io*": seen, "template=" + id: true})
		p := &farm.InstanceHistory{TemplateID: id, TemplateName: "ios"}
		finds(t, narrow().pastFields(), p, want)
		if got := historyToAPI(p, narrow()); (got.TemplateName == "ios") != seen || got.VMID != id {
			t.Errorf("the history shows %q of the template %s", got.TemplateName, id)
		}
	}
}

// TestCacheJobsShown without nodes that may not be listed; the record stays as it is.
func TestCacheJobsShown(t *testing.T) {
	e := &farm.CacheJob{Nodes: []string{"other", "seen"}}
	view := cachejobs.View{CacheJob: e, On: map[string]farm.CacheJobResult{"other": {}, "seen": {Done: true}}}
	if got := fmt.Sprint(distributionToAPI(narrow().visiblePart(view)).Status); got != "map[seen:{true  0}]" {
		t.Error(got)
	}
	if len(view.On) != 2 || len(e.Nodes) != 2 {
		t.Error("the cache job was changed")
	}
	finds(t, narrow().cacheJobFields(),
		e, map[string]bool{"node=other": false, "node=seen": true, "nodes>1": false, "nodes=1": true})
	finds(t, cacheJobFields, e, map[string]bool{"node=other": true, "nodes>1": true})
	if !slices.Equal(e.Nodes, []string{"other", "seen"}) {
		t.Error("the filter changed the cache job")
	}
}
