package fault

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestSum: saves that are done, that failed and that a termination ended are counted separately.
func TestSum(t *testing.T) {
	asks := func(id, tag string) call {
		return call{
			Op: opSave, Begin: 3, End: 4, Instances: []string{id}, Acked: true, Request: "r-" + id,
			Save: &saveExpectation{saveOrder: saveOrder{Instance: id, Tag: tag}},
		}
	}
	ends := func(id, tag, status, message string) api.SaveImage {
		r := answer(status, message)
		r.ID, r.Request.InstanceID, r.Request.Tag = "r-"+id, id, tag
		return r
	}
	s := &scene{history: newHistory(), hits: map[string]int{"node": 2}}
	for _, c := range []call{
		asks("a", "t"), asks("b", "u"), asks("c", "v"), asks("d", "w"), terminate(5, 6, true, "c"),
		{Op: opRestart, Instances: []string{"b"}, Acked: true},
	} {
		s.history.add(c)
	}
	const id = "01a1ff6e-63e7-7ecf-87c5-f5f011761944"
	got := s.sum(world{Requests: []api.SaveImage{
		ends("a", "t", saveDone, ""), ends("b", "u", saveError, "VM "+id+":\nno"),
		ends("c", "v", saveError, "terminated"),
		ends("d", "w", saveError, "VM "+strings.Replace(id, "01", "02", 1)+":\nno"),
	}}, map[string]int{"Started": 1})
	if got.Done != 1 || got.Failed != 2 || got.Ended != 1 || got.Restarts != 1 {
		t.Errorf("sum is %+v", got)
	}
	if text := got.String(); !strings.Contains(text, "2 x VM ...:; no") ||
		!strings.Contains(text, "killed: 2 x node\n") {
		t.Errorf("it reads %q", text)
	}
	if err := got.enough(2); err != nil {
		t.Error(err)
	}
	if err := got.enough(4); err == nil {
		t.Error("one save is enough for four kills")
	}
}
