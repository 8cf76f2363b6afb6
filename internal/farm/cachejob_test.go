package farm_test

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestCacheJobOnANode: every combination of what decides how a node is shown, the first row that fits.
func TestCacheJobOnANode(t *testing.T) {
	outcome := &farm.CacheJobResult{Error: "no room", Progress: 0.5}
	ended := time.Unix(1, 0)
	open := farm.CacheJob{
		Template: farm.TemplateRef{Arch: "arm64"},
		Nodes:    []string{"a", "b", "d"}, WrongArchNodes: []string{"b"},
	}
	with := func(end farm.CacheJobEndReason) farm.CacheJob {
		e := open
		e.EndReason, e.EndedAt = end, ended
		return e
	}
	for name, c := range map[string]struct {
		cacheJob farm.CacheJob
		node     string
		outcome  *farm.CacheJobResult
		present  bool
		want     farm.CacheJobResult
	}{
		"works on it":             {open, "a", nil, true, farm.CacheJobResult{Progress: 0.25}},
		"has an outcome":          {open, "a", outcome, true, *outcome},
		"has one and is gone":     {open, "a", outcome, false, *outcome},
		"has one of an ended one": {with(farm.CacheJobCanceled), "a", outcome, true, *outcome},
		"is gone": {
			open, "a", nil, false, farm.CacheJobResult{Error: "The node was removed from the cloud"},
		},
		"did not do it in time": {
			with(farm.CacheJobExpired), "a", nil, true,
			farm.CacheJobResult{Error: "The node did not do it before the request expired"},
		},
		"was told not to": {
			with(farm.CacheJobCanceled), "a", nil, true, farm.CacheJobResult{Error: "request canceled"},
		},
		"gone when it finished": {
			with(farm.CacheJobFinished), "a", nil, true,
			farm.CacheJobResult{Error: "The node was removed from the cloud"},
		},
		"of another architecture": {
			open, "b", outcome, true, farm.CacheJobResult{Error: "The template is for arm64, the node is not"},
		},
	} {
		if got := c.cacheJob.ResultOn(c.node, c.outcome, c.present, 0.25); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestCacheJobAddresses(t *testing.T) {
	e := farm.CacheJob{Nodes: []string{"a", "b", "d"}, WrongArchNodes: []string{"b"}}
	for node, want := range map[string]bool{"a": true, "b": false, "c": false, "d": true, "": false} {
		if got := e.HasWorkFor(node); got != want {
			t.Errorf("node %q is addressed: %t", node, got)
		}
	}
}
