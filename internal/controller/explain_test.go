package controller

import (
	"strings"
	"testing"
	"testing/synctest"

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
		if err := c.Instances.Terminate(t.Context(), waiting); err != nil {
			t.Fatal(err)
		}
		explain(waiting, "it was terminated")
		if _, err := c.Explain(t.Context(), "nobody", everyNode); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("an instance that is not there: %v", err)
		}
		for state, want := range map[farm.InstanceState]string{
			farm.Errored: "it has failed and is not tried again: broken",
			farm.Started: "it is placed on node n, where it is Started",
		} {
			if got := settled(&farm.Instance{State: state, NodeID: "n", Message: "broken"}); got != want {
				t.Errorf("%s: %q, want %q", state, got, want)
			}
		}
	})
}
