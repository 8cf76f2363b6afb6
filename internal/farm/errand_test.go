package farm_test

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestErrandOnANode: every combination of what decides how a node is shown, the first row that fits.
func TestErrandOnANode(t *testing.T) {
	outcome := &farm.Outcome{Error: "no room", Progress: 0.5}
	ended := time.Unix(1, 0)
	open := farm.Errand{
		Template: farm.TemplateRef{Arch: "arm64"},
		Nodes:    []string{"a", "b", "d"}, Unfit: []string{"b"},
	}
	with := func(end farm.ErrandEnd) farm.Errand {
		e := open
		e.End, e.Ended = end, ended
		return e
	}
	for name, c := range map[string]struct {
		errand  farm.Errand
		node    string
		outcome *farm.Outcome
		present bool
		want    farm.Outcome
	}{
		"works on it":             {open, "a", nil, true, farm.Outcome{Progress: 0.25}},
		"has an outcome":          {open, "a", outcome, true, *outcome},
		"has one and is gone":     {open, "a", outcome, false, *outcome},
		"has one of an ended one": {with(farm.ErrandCanceled), "a", outcome, true, *outcome},
		"is gone":                 {open, "a", nil, false, farm.Outcome{Error: "The node was removed from the cloud"}},
		"did not do it in time":   {with(farm.ErrandExpired), "a", nil, true, farm.Outcome{Error: "The node did not do it before the request expired"}},
		"was told not to":         {with(farm.ErrandCanceled), "a", nil, true, farm.Outcome{Error: "request canceled"}},
		"gone when it finished":   {with(farm.ErrandFinished), "a", nil, true, farm.Outcome{Error: "The node was removed from the cloud"}},
		"of another architecture": {open, "b", outcome, true, farm.Outcome{Error: "The template is for arm64, the node is not"}},
	} {
		if got := c.errand.On(c.node, c.outcome, c.present, 0.25); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestErrandAddresses(t *testing.T) {
	e := farm.Errand{Nodes: []string{"a", "b", "d"}, Unfit: []string{"b"}}
	for node, want := range map[string]bool{"a": true, "b": false, "c": false, "d": true, "": false} {
		if got := e.Addresses(node); got != want {
			t.Errorf("node %q is addressed: %t", node, got)
		}
	}
}
