package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

func TestExplain(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		waiting := c.mustStart(StartRequest{TemplateID: templateID, Count: 1})[0]
		explain := func(id, reason string) []string {
			t.Helper()
			e, err := c.Explain(t.Context(), id, everyNode)
			if err != nil || !strings.HasPrefix(e.Reason, reason) {
				t.Errorf("%q (%v), want %q", e.Reason, err, reason)
			}
			lines := []string{}
			for _, n := range e.Nodes {
				if n.NodeID == "" || n.CanStart != (n.Reason == "") {
					t.Errorf("%+v", n)
				}
				lines = append(lines, n.NodeName+" "+n.Reason)
			}
			return lines
		}
		explain(waiting, "there are no nodes")
		c.join("one", 1)
		synctest.Wait()
		explain(waiting, "it is placed on node one, which prepares it")
		second := c.mustStart(StartRequest{TemplateID: templateID, Count: 1})[0]
		if nodes := explain(second, ""); len(nodes) != 1 || !strings.HasPrefix(nodes[0], "one ") || len(nodes[0]) < 8 {
			t.Errorf("%q", nodes)
		}
		e, err := c.Explain(t.Context(), second, everyNode)
		if err != nil || len(e.Counts) != 1 || e.Counts[0].Nodes != 1 || e.Counts[0].Remedy == "" || e.Queue == nil ||
			e.Queue.Position != 1 || e.Queue.Waiting != 1 || e.Queue.ExpectedSeconds == nil {
			t.Errorf("%+v, %v", e, err)
		}
		hidden, err := c.Explain(t.Context(), second, func(string) bool { return false })
		if err != nil || len(hidden.Counts) != 0 || len(hidden.Nodes) != 0 {
			t.Errorf("a caller that sees no node: %+v, %v", hidden, err)
		}
		hidden, err = c.Explain(t.Context(), waiting, func(string) bool { return false })
		if err != nil || hidden.Reason != "it is placed on a node, which prepares it" {
			t.Errorf("a caller that does not see its node: %+v, %v", hidden, err)
		}
		if err := c.Instances.Terminate(t.Context(), waiting); err != nil {
			t.Fatal(err)
		}
		explain(waiting, "it was terminated")
		if _, err := c.Explain(t.Context(), "nobody", everyNode); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("an instance that is not there: %v", err)
		}
		lost := &farm.Instance{State: farm.Scheduling, NodeID: "n", NodeLostAt: time.Now()}
		if got, want := settled(lost, everyNode),
			"it is placed on node n, which is offline: it continues when the node returns"; got != want {
			t.Errorf("of an offline node: %q, want %q", got, want)
		}
		for state, want := range map[farm.InstanceState]string{
			farm.Errored: "it has failed and is not tried again: broken",
			farm.Started: "it is placed on node n, where it is Started",
		} {
			if got := settled(&farm.Instance{State: state, NodeID: "n", Message: "broken"}, everyNode); got != want {
				t.Errorf("%s: %q, want %q", state, got, want)
			}
		}
	})
}
