package portal

import (
	"slices"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestTagsOfEqualContent: each tag of a cached content is cached, and a node and its bytes count once.
func TestTagsOfEqualContent(t *testing.T) {
	view := templateView{Tags: []tagRow{
		{Tag: "v3", ContentID: "b"}, {Tag: "v2", ContentID: "a"}, {Tag: "v1", ContentID: "a"},
	}}
	view.addCachingNodes([]api.TemplateNode{
		{NodeID: "1", Versions: []api.CachedVersion{
			{ContentID: "a", Size: 10}, {ContentID: "a", Size: 10}, {ContentID: "gone", Size: 5},
		}},
		{NodeID: "2", Versions: []api.CachedVersion{{ContentID: "b", Size: 7}}},
	})
	first := view.CachingNodes[0]
	if !slices.Equal(first.Tags, []string{"v2", "v1"}) || first.Size != 15 || first.StaleVersions != 1 {
		t.Errorf("the first node has %+v", first)
	}
	for i, nodes := range []int{1, 1, 1} {
		if view.Tags[i].Nodes != nodes {
			t.Errorf("%s is cached on %d nodes", view.Tags[i].Tag, view.Tags[i].Nodes)
		}
	}
}
