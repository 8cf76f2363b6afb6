package fault

import (
	"strings"
	"testing"
	"time"
)

func create(begin, end time.Duration, external string, ids ...string) call {
	return call{Op: opCreate, Begin: begin, End: end, ExternalID: external, Instances: ids, Acked: len(ids) > 0}
}

func terminate(begin, end time.Duration, acked bool, id string) call {
	return call{Op: opTerminate, Begin: begin, End: end, Instances: []string{id}, Acked: acked}
}

func look(begin, end time.Duration, id, state string) call {
	return call{Op: opLook, Begin: begin, End: end, Instances: []string{id}, State: state, Acked: true}
}

func failed(begin, end time.Duration, id, message string) call {
	c := look(begin, end, id, "Error")
	c.Message = message
	return c
}

// TestCheckCalls has one history per line: a broken promise is found, a late or unknown result is
// not.
func TestCheckCalls(t *testing.T) {
	made := create(1, 2, "x", "a")
	cases := map[string]struct {
		calls []call
		rules rules
		want  string // of the one problem; "" for none
	}{
		"orderly": {[]call{
			made, look(3, 4, "a", "Scheduling"), look(4, 5, "a", "Pulling"), look(5, 6, "a", "Started"),
			terminate(7, 8, true, "a"), look(9, 10, "a", "Terminating"), look(10, 11, "a", "Terminated"),
			look(12, 13, "a", notFound),
		}, rules{}, ""},
		"started and forgotten": {
			[]call{made, look(3, 4, "a", "Started"), look(5, 6, "a", "Scheduling")},
			rules{},
			"was Started and is Scheduling",
		},
		"overlapping looks": {
			[]call{made, look(4, 5, "a", "Started"), look(3, 6, "a", "Scheduling")}, rules{}, "",
		},
		"lost":                      {[]call{made, look(3, 4, "a", notFound)}, rules{}, "and gone"},
		"asked before acknowledged": {[]call{look(1, 3, "a", notFound), made}, rules{}, ""},
		"never acknowledged":        {[]call{create(1, 2, "x"), look(3, 4, "a", notFound)}, rules{}, ""},
		"terminated on its own":     {[]call{made, look(3, 4, "a", "Terminating")}, rules{}, "no call terminated it"},
		"error":                     {[]call{made, look(3, 4, "a", "Error")}, rules{}, "is Error"},
		"error after a kill": {
			[]call{made, failed(3, 4, "a", "it was killed")}, rules{Errors: []string{"was killed"}}, "",
		},
		"another error after a kill": {
			[]call{made, failed(3, 4, "a", "no disk")}, rules{Errors: []string{"was killed"}}, "is Error: no disk",
		},
		"stopping after a kill": {
			[]call{made, look(3, 4, "a", "Stopping")}, rules{Errors: []string{"was killed"}}, "",
		},
		"stopping without a kill": {[]call{made, look(3, 4, "a", "Stopping")}, rules{}, "is Stopping"},
		"unknown termination, there": {
			[]call{made, terminate(3, 4, false, "a"), look(5, 6, "a", "Started")}, rules{}, "",
		},
		"unknown termination, gone": {
			[]call{made, terminate(3, 4, false, "a"), look(5, 6, "a", notFound)}, rules{}, "",
		},
		"termination meanwhile": {
			[]call{made, look(3, 6, "a", notFound), terminate(4, 5, true, "a")}, rules{}, "",
		},
		"started after termination": {
			[]call{made, terminate(3, 4, true, "a"), look(5, 6, "a", "Started")},
			rules{},
			"Started after an acknowledged",
		},
		"scheduling after termination": {
			[]call{made, terminate(3, 4, true, "a"), look(5, 6, "a", "Scheduling")},
			rules{},
			"Scheduling after an acknowledged",
		},
		"error after termination": {
			[]call{made, terminate(3, 4, true, "a"), look(5, 6, "a", "Error")},
			rules{Errors: []string{""}},
			"Error after an acknowledged",
		},
		"started before the answer": {
			[]call{made, look(4, 7, "a", "Started"), terminate(3, 6, true, "a")}, rules{}, "",
		},
		"back from the dead": {[]call{
			made, terminate(3, 4, true, "a"), look(5, 6, "a", notFound), look(7, 8, "a", "Terminating"),
		}, rules{}, "was gone and is Terminating again"},
		"a failed look says nothing": {
			[]call{made, {Op: opLook, Begin: 3, End: 4, Instances: []string{"a"}, State: notFound}}, rules{}, "",
		},
		"missing in a list": {[]call{
			made, {Op: opList, Begin: 3, End: 4, Instances: []string{"a"}, State: notFound, Acked: true},
		}, rules{}, "and gone"},
		"refused the first time": {[]call{
			made, {Op: opTerminate, Begin: 3, End: 4, Instances: []string{"a"}, Message: "Not found"},
		}, rules{}, "could not be terminated"},
		"refused the second time": {[]call{made, terminate(3, 4, false,
			"a"), {Op: opTerminate, Begin: 5, End: 6, Instances: []string{"a"}, Message: "Not found"}}, rules{}, ""},
		"two of one create": {[]call{create(1, 2, "x", "a", "b"), look(3, 4, "a", "Started"), look(3, 4, "b",
			notFound)}, rules{}, "instance b"},
		"one sentence an instance": {
			[]call{made, look(3, 4, "a", notFound), look(5, 6, "a", notFound)}, rules{}, "and gone",
		},
	}
	for name, c := range cases {
		var f findings
		checkCalls(c.calls, nil, c.rules, &f)
		expectOne(t, name, f, "lost: ", c.want)
	}
}

// expectOne wants exactly one problem of a kind, or none.
func expectOne(t *testing.T, name string, f findings, kind, want string) {
	t.Helper()
	if f.Lost+f.Orphans+f.Stuck+f.Wrong != len(f.Problems) {
		t.Errorf("%s: the counts and the sentences differ: %+v", name, f)
	}
	switch {
	case want == "" && len(f.Problems) == 0:
	case want != "" && len(f.Problems) == 1 && strings.HasPrefix(f.Problems[0], kind) &&
		strings.Contains(f.Problems[0], want):
	default:
		t.Errorf("%s: problems %q, want %s%q", name, f.Problems, kind, want)
	}
}

func TestCheckCalm(t *testing.T) {
	made := []call{create(1, 2, "x", "a")}
	ended := append(made[:1:1], terminate(3, 4, true, "a"))
	started := []record{{ID: "a", ExternalID: "x", State: "Started"}}
	vm := []machine{{Instance: "a", What: "here", Running: true}}
	cases := map[string]struct {
		calls      []call
		world      world
		rules      rules
		kind, want string
	}{
		"running":          {made, world{Records: started, Machines: vm}, rules{}, "", ""},
		"ended":            {ended, world{}, rules{}, "", ""},
		"record lost":      {made, world{}, rules{}, "lost: ", "is not listed"},
		"termination lost": {ended, world{Records: started, Machines: vm}, rules{}, "lost: ", "still listed"},
		"VM lost":          {made, world{Records: started}, rules{}, "lost: ", "has no running VM"},
		"VM dead": {
			made,
			world{Records: started, Machines: []machine{{Instance: "a", What: "here"}}},
			rules{},
			"lost: ", "has no running VM",
		},
		"waiting for ever": {
			made,
			world{Records: []record{{ID: "a", ExternalID: "x", State: "Scheduling"}}},
			rules{},
			"stuck: ", "is Scheduling",
		},
		"stopping for ever": {made, world{
			Records: []record{{ID: "a", ExternalID: "x", State: "Stopping"}}, Machines: vm,
		}, rules{}, "stuck: ", "is Stopping"},
		"error": {made, world{
			Records: []record{{ID: "a", ExternalID: "x", State: "Error", Message: "why"}},
		}, rules{}, "lost: ", "ended in Error: why"},
		"error after a kill": {made, world{
			Records: []record{{ID: "a", ExternalID: "x", State: "Error", Message: "killed"}},
		}, rules{Errors: []string{"kill"}}, "", ""},
		"VM without record": {ended, world{Machines: vm}, rules{}, "orphan: ", "without a record"},
		"two VMs": {
			made,
			world{Records: started, Machines: []machine{vm[0], vm[0]}},
			rules{},
			"orphan: ",
			"second VM",
		},
		"twin": {made, world{
			Records: append(started[:1:1], record{ID: "b", ExternalID: "x", State: "Stopped"}), Machines: vm,
		}, rules{}, "orphan: ", "is a twin"},
		"nobody asked": {made, world{
			Records: append(started[:1:1], record{ID: "b", ExternalID: "y", State: "Stopped"}), Machines: vm,
		}, rules{}, "orphan: ", "nobody asked for"},
		"unknown create": {
			[]call{create(1, 2, "x")},
			world{Records: []record{{ID: "a", ExternalID: "x", State: "Started"}}, Machines: vm},
			rules{},
			"", "",
		},
		"unknown termination": {append(made[:1:1],
			terminate(3, 4, false, "a")), world{Records: started, Machines: vm}, rules{}, "", ""},
		"unknown termination2": {append(made[:1:1], terminate(3, 4, false, "a")), world{}, rules{}, "", ""},
	}
	for name, c := range cases {
		var f findings
		checkCalm(ledgerOf(c.calls), c.world, c.rules, &f)
		expectOne(t, name, f, c.kind, c.want)
	}
}

func TestCheckEnd(t *testing.T) {
	var f findings
	checkEnd(world{}, &f)
	expectOne(t, "empty", f, "", "")
	checkEnd(world{Records: []record{{ID: "a", ExternalID: "x", State: "Terminating"}}}, &f)
	expectOne(t, "record", f, "stuck: ", "is Terminating")
	f = findings{}
	checkEnd(world{Machines: []machine{{Instance: "a", What: "here", Running: true}}}, &f)
	expectOne(t, "VM", f, "orphan: ", "here")
}
