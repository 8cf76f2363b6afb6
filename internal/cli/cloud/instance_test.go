package cloud

import (
	"testing"

	"github.com/buildyard/buildyard/api"
)

func TestProgressText(t *testing.T) {
	for _, tc := range []struct{ state, phase, want string }{
		{"Scheduling", "queued", "Scheduling (queued)"},
		{"Scheduling", "booting", "Scheduling (booting)"},
		{"Scheduling", "", "Scheduling"}, // of a controller of an earlier release
		{"Pulling", "pulling", "Pulling"},
		{"Started", "running", "Started"},
	} {
		if got := progressText(api.Instance{InstanceState: tc.state, Phase: tc.phase}); got != tc.want {
			t.Errorf("%s, %q: %q, want %q", tc.state, tc.phase, got, tc.want)
		}
	}
}

func TestFailureTexts(t *testing.T) {
	for _, tc := range []struct {
		name    string
		failure *api.InstanceFailure
		want    [3]string
	}{
		{"none", nil, [3]string{}},
		{
			"one", &api.InstanceFailure{
				Class: "disk", Step: "pull", Summary: "Full.", Remedy: "Free space.",
				SameTemplate: 1, SameTemplateNodes: 1, SameNode: 1,
			},
			[3]string{"disk in step pull: Full.", "Free space.", ""},
		},
		{
			"several", &api.InstanceFailure{
				Class: "disk", Step: "pull", Summary: "Full.", SameTemplate: 3, SameTemplateNodes: 2, SameNode: 4,
			},
			[3]string{"disk in step pull: Full.", "", "3 of this template version on 2 nodes, 4 on this node"},
		},
	} {
		got := [3]string{failureText(tc.failure), remedyText(tc.failure), equalFailuresText(tc.failure)}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
