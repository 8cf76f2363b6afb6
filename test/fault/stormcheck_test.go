package fault

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// at is a look that saw an instance on a node.
func at(begin, end time.Duration, id, state, node string) call {
	c := look(begin, end, id, state)
	c.Node = node
	return c
}

// told is an event of a stream that was opened at begin.
func told(stream int, begin, end time.Duration, id, state, node string) call {
	c := at(begin, end, id, state, node)
	c.Op, c.Stream = opWatch, stream
	return c
}

// TestStormCheck plants a violation of each rule, and next to it a valid case that only looks like
// one.
func TestStormCheck(t *testing.T) {
	a, b := create(1, 2, "x", "a"), create(1, 2, "y", "b")
	cases := map[string]struct {
		calls      []call
		kind, want string
	}{
		"orderly": {[]call{
			a, at(3, 4, "a", "Scheduling", ""), at(5, 6, "a", "Pulling", "n"), told(1, 0, 7, "a", "Started", "n"),
			terminate(8, 9, true, "a"),
			told(1, 0, 10, "a", "Terminating", "n"), told(1, 0, 11, "a", "Terminated", "n"),
			told(1, 0, 12, "a", notFound, ""), look(13, 14, "a", notFound),
		}, "", ""},
		"acknowledged and lost": {[]call{a, told(1, 3, 4, "a", notFound, "")}, "lost: ", "and gone"},
		"started after a termination": {
			[]call{a, terminate(3, 4, true, "a"), told(2, 5, 6, "a", "Started", "n")},
			"lost: ", "after an acknowledged termination",
		},
		"an event on its way": {
			[]call{a, terminate(3, 4, true, "a"), told(1, 0, 6, "a", "Started", "n")}, "", "",
		},
		"on two nodes": {
			[]call{a, at(3, 4, "a", "Scheduling", "n"), at(5, 6, "a", "Scheduling", "m")},
			"wrong: ", "was on node n and is on m",
		},
		"on two nodes, in a stream": {
			[]call{a, at(3, 4, "a", "Started", "n"), told(1, 0, 6, "a", "Started", "m")},
			"wrong: ", "was on node n and is on m",
		},
		"against the edges": {[]call{create(9, 9, "x", "a"), at(3, 4, "a", "Terminating", "n"), at(5, 6, "a",
			"Started", "n")}, "wrong: ", `was "Terminating" and is "Started"`},
		"overlapping looks": {
			[]call{create(9, 9, "x", "a"), at(3, 5, "a", "Terminating", "n"), at(4, 6, "a", "Started", "n")}, "", "",
		},
		"against the edges, streamed": {[]call{create(9, 9, "x", "a"), told(1, 0, 4, "a", "Started", "n"), told(1, 0,
			5, "a", "Pulling", "n")}, "wrong: ", "in one stream"},
		"another stream": {[]call{create(9, 9, "x", "a"), told(1, 0, 4, "a", "Started", "n"), told(2, 3,
			5, "a", "Pulling", "n")}, "", ""},
		"too many": {[]call{a, b, at(3, 4, "a", "Started", "n"), at(3, 4, "b", "Pulling", "n"), at(6,
			7, "a", "Started", "n"), at(6, 7, "b", "Started", "n")}, "wrong: ", "had 2 instances and has 1 slots"},
		"one after the other": {[]call{
			a, b, at(3, 4, "a", "Started", "n"), at(6, 7, "a", "Started", "n"), terminate(7, 8, true, "a"),
			at(8, 9, "b", "Pulling", "n"), at(9, 10, "a", "Terminated", "n"), at(11, 12, "b", "Started", "n"),
		}, "", ""},
		"one sentence an instance": {[]call{
			create(9, 9, "x", "a"), at(3, 4, "a", "Started", "n"), at(5, 6, "a", "Pulling", "n"),
			at(7, 8, "a", "Pulling", "m"),
		}, "wrong: ", "Pulling"},
	}
	for name, c := range cases {
		var f findings
		newStormChecker(ledgerOf(c.calls), rules{}, 1, nil).check(slices.Values(c.calls), &f)
		expectOne(t, name, f, c.kind, c.want)
	}
}

// TestStormSum counts a load: what was offered before, in and at the end of the times
// for which the controller was up.
func TestStormSum(t *testing.T) {
	const s = time.Second
	var calls []call
	for i, begin := range []time.Duration{0, 1 * s, 2 * s, 3 * s, 4*s - time.Millisecond, 5 * s, 6 * s} {
		c := create(begin, begin+time.Duration(i+1)*time.Millisecond, fmt.Sprint("x", i))
		c.Acked = i == 1 || i == 2
		calls = append(calls, c)
	}
	calls = append(calls, create(0, 1, "y", "a"), at(2*s, 3*s, "a", "Started", "n"))
	var f findings
	got := newStormChecker(ledgerOf(calls), rules{}, 1, []span{{s, 4 * s}, {5 * s, 5*s + 1}}).check(
		slices.Values(calls), &f)
	if got.Offered != 8 || got.WhileUp != 3 || got.Served != 2 || got.Up != 3*s+1 || got.P50 != 3*time.Millisecond ||
		got.Longest != 3*s-1 {
		t.Errorf("the sum is %+v", got)
	}
	if text := got.String(); !strings.Contains(text, "2 of 3 (66.7 %)") {
		t.Errorf("it says %s", text)
	}
}

// TestReaches: nothing comes back from its end, and a start leads everywhere.
func TestReaches(t *testing.T) {
	for _, s := range farm.InstanceStates {
		if !reaches[farm.Scheduling][s] || !reaches[s][farm.InstanceRemoved] || reaches[farm.InstanceRemoved][s] {
			t.Errorf("%s: from the start %v, to the end %v, back %v", s, reaches[farm.Scheduling][s],
				reaches[s][farm.InstanceRemoved], reaches[farm.InstanceRemoved][s])
		}
		if back := reaches[farm.Terminating][s]; back != (s == farm.Terminating || s == farm.Terminated) {
			t.Errorf("from a termination to %s: %v", s, back)
		}
	}
}

// TestSpill: what was kept is read again, also while more is kept, and a file that was
// cut short is not taken for the whole.
func TestSpill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	s, err := newSpill(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []call{create(1, 2, "x", "a"), told(3, 4, 5, "a", "Started", "n")}
	for i, c := range want {
		s.add(c)
		all, read := s.each()
		got := slices.Collect(all)
		if read() != nil || len(got) != i+1 || fmt.Sprintf("%+v", got[i]) != fmt.Sprintf("%+v", c) {
			t.Errorf("read %+v, %v", got, read())
		}
	}
	if err := s.file.Truncate(50); err != nil {
		t.Fatal(err)
	}
	all, read := s.each()
	if n := len(slices.Collect(all)); n != 0 || read() == nil || !strings.Contains(read().Error(), "call 1 of 2") {
		t.Errorf("%d calls of a short file, %v", n, read())
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if _, err := newSpill(path); err == nil {
		t.Error("a history of another run was taken over")
	}
}

// TestStormCases: a load that was too small, or hardly served, proves nothing.
func TestStormCases(t *testing.T) {
	good := stormSum{PerS: 490, Need: 500, Share: 0.95, WhileUp: 10, Streams: 1, Fullest: 120, Slots: 150}
	for name, change := range map[string]func(*stormSum){
		"": func(*stormSum) {}, "offered": func(s *stormSum) { s.PerS = 400 },
		"served": func(s *stormSum) { s.Share = 0.8 }, "streams": func(s *stormSum) { s.Streams = 0 },
		"crowded": func(s *stormSum) { s.Fullest = 119 },
	} {
		sum, r := good, report{}
		change(&sum)
		r.evaluateTarget(result{Target: "t", Kills: 1, Planned: 1, Acknowledged: 1, Needed: 1, Storm: &sum})
		var failed []string
		for _, c := range r.Cases {
			if c.Outcome != "passed" {
				failed = append(failed, strings.TrimPrefix(c.Name, "t: "))
			}
		}
		if strings.Join(failed, " ") != name {
			t.Errorf("%q: failed %v of %v", name, failed, r.Cases)
		}
	}
}
