package controller

import (
	"fmt"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestInstanceList: a list that is read from the snapshot shows the instances as they were when it
// was made, each time, and nothing that changed later.
func TestInstanceList(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.mustStart(StartRequest{TemplateID: templateID, Count: 3, ExternalID: "some"})
		pinned := farm.StartOptions{PinnedNode: c.join("later", 0).id}
		c.mustStart(StartRequest{TemplateID: templateID, Count: explainBatch, Options: pinned})
		first := c.mustStart(StartRequest{TemplateID: templateID, Count: 2, ExternalID: "some"})[0]
		for _, p := range []Page{
			{},
			{Limit: 2},
			{Limit: explainBatch + 1},
			{After: first},
			{ExternalID: "some"},
			{ExternalID: "some", Limit: 4},
			{ExternalID: "none"},
			{Match: func(l InstanceView) bool { return l.ExternalID == "some" }},
		} {
			var visited []InstanceView
			want, list := texts(c.Instances(p)),
				c.ListInstances(p, func(l InstanceView) { visited = append(visited, l) })
			if got := texts(visited); !slices.Equal(got, want) {
				t.Errorf("%+v: %d instances were visited, want %d: %.300s", p, len(got), len(want), got)
			}
			c.mustStart(StartRequest{TemplateID: templateID, Count: 1, ExternalID: "some"})
			for range 2 {
				if got := texts(slices.Collect(list.All())); !slices.Equal(got, want) {
					t.Errorf("%+v: %d instances, want %d: %.300s", p, len(got), len(want), got)
				}
			}
		}
	})
}

func texts(list []InstanceView) (out []string) {
	for _, l := range list {
		out = append(out, fmt.Sprint(l.ID, " ", l.State, " ", l.Message))
	}
	return out
}
