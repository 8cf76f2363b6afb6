package farm_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// pair is one state and one event of one machine; its value is the outcome in the file: the next
// state, "keeps" or "void".
type pair struct{ machine, state, event string }

// readExpectations reads testdata/transitions.txt; its head describes the form.
func readExpectations(t *testing.T) map[pair]string {
	t.Helper()
	f, err := os.Open("testdata/transitions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	want := map[pair]string{}
	var at pair
	lines := bufio.NewScanner(f)
	for no := 1; lines.Scan(); no++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch word {
		case "":
			continue
		case "machine":
			at = pair{machine: rest}
			continue
		case "from":
			at.state = rest
			continue
		}
		at.event = word
		if _, twice := want[at]; twice {
			t.Fatalf("line %d: %v is said twice", no, at)
		}
		switch to, moves := strings.CutPrefix(rest, "-> "); {
		case moves && to == "(gone)":
			want[at] = string(farm.InstanceRemoved)
		case moves || rest == "keeps" || rest == "void":
			want[at] = to
		default:
			t.Fatalf("line %d: cannot read %q", no, line)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return want
}

// outcome describes the result of a table in the words of the file.
func outcome(from, to string, known bool) string {
	switch {
	case !known && from == to:
		return "void"
	case !known:
		return "void, but moved to " + to
	case from == to:
		return "keeps"
	default:
		return to
	}
}

// actual walks every pair of the three tables.
func actual() map[pair]string {
	got := map[pair]string{}
	for _, s := range farm.InstanceStates {
		for _, e := range farm.InstanceEvents {
			to, ok := farm.NextInstanceState(s, e)
			got[pair{"instance", string(s), string(e)}] = outcome(string(s), string(to), ok)
		}
	}
	for _, s := range farm.NodeStates {
		for _, e := range farm.NodeEvents {
			to, _ := farm.NextNodeState(s, false, e)
			got[pair{"node", string(s), string(e)}] = outcome(string(s), string(to), true)
		}
	}
	for _, s := range farm.SaveStatuses {
		for _, e := range farm.InstanceEvents {
			to, ok := farm.NextSaveState(s, e)
			got[pair{"save", string(s), string(e)}] = outcome(string(s), string(to), ok)
		}
	}
	return got
}

func TestEveryTransition(t *testing.T) {
	want, got := readExpectations(t), actual()
	for p, w := range want {
		g, ok := got[p]
		if !ok {
			t.Errorf("%v is expected and no pair of the tables", p)
		} else if g != w {
			t.Errorf("%s: %s on %s is %q, want %q", p.machine, p.state, p.event, g, w)
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%v is a pair of the tables and not expected", p)
		}
	}
	const instance, node, save = 9 * 22, 5 * 9, 3 * 22
	if len(want) != instance+node+save {
		t.Errorf("%d pairs are expected, want %d", len(want), instance+node+save)
	}
}

// TestStatesAreThoseOfTheAPI holds the texts that clients compare.
func TestStatesAreThoseOfTheAPI(t *testing.T) {
	texts := map[string]bool{}
	for _, s := range farm.InstanceStates {
		texts[string(s)] = true
	}
	for want := range strings.FieldsSeq(
		"Scheduling Pulling Started Stopping Stopped Terminating Terminated Error Pushing") {
		if !texts[want] {
			t.Errorf("%s is no state", want)
		}
	}
	if len(texts) != 9 {
		t.Errorf("%d states, want 9", len(texts))
	}
}

func TestDrainFlag(t *testing.T) {
	for _, s := range farm.NodeStates {
		for _, e := range farm.NodeEvents {
			for _, drain := range []bool{false, true} {
				want := drain
				if e == farm.DrainOn || e == farm.DrainOff {
					want = e == farm.DrainOn
				}
				if _, got := farm.NextNodeState(s, drain, e); got != want {
					t.Errorf("%s on %s with drain %v gives drain %v", s, e, drain, got)
				}
			}
		}
	}
}

func TestDrainIsShownInPlaceOfActiveOnly(t *testing.T) {
	for _, s := range farm.NodeStates {
		for _, drain := range []bool{false, true} {
			want := s
			if s == farm.NodeActive && drain {
				want = "Drain Mode"
			}
			n := farm.Node{State: s, Drain: drain}
			if got := n.VisibleState(); got != want {
				t.Errorf("%s with drain %v is shown as %q", s, drain, got)
			}
			if got := n.AcceptsStarts(); got != (s == farm.NodeActive && !drain) {
				t.Errorf("%s with drain %v takes starts: %v", s, drain, got)
			}
		}
	}
}

func TestScriptFailedByHandler(t *testing.T) {
	for handler, want := range map[farm.ScriptFailureAction]farm.InstanceEvent{
		0: "script-failed(stop)", 1: "script-failed(keep)", 2: "script-failed(delete)",
		3: "script-failed(stop)", -1: "script-failed(stop)", // what is unknown does the least harm to the host
	} {
		if got := farm.ScriptFailed(handler); got != want {
			t.Errorf("handler %d gives %s, want %s", handler, got, want)
		}
	}
}
