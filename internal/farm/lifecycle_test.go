package farm_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/farm"
)

// reach returns every state that some chain of events reaches from one, itself included.
func reach(from farm.InstanceState, without ...farm.InstanceState) map[farm.InstanceState]bool {
	seen := map[farm.InstanceState]bool{from: true}
	open := []farm.InstanceState{from}
	for len(open) > 0 {
		s := open[0]
		open = open[1:]
		for _, e := range farm.InstanceEvents {
			to, ok := farm.NextInstanceState(s, e)
			if ok && !seen[to] && !slices.Contains(without, to) {
				seen[to] = true
				open = append(open, to)
			}
		}
	}
	return seen
}

func TestTerminatingLeadsOnlyToTerminated(t *testing.T) {
	for _, e := range farm.InstanceEvents {
		if to, _ := farm.NextInstanceState(farm.Terminating, e); to != farm.Terminating && to != farm.Terminated {
			t.Errorf("%s leads from Terminating to %q", e, to)
		}
	}
	if got := reach(farm.Terminating); len(got) != 3 || !got[farm.Terminated] || !got[farm.InstanceRemoved] {
		t.Errorf("Terminating reaches %v", got)
	}
}

func TestEveryStateCanBeTerminated(t *testing.T) {
	for _, s := range farm.InstanceStates {
		if !reach(s)[farm.Terminated] {
			t.Errorf("Terminated is out of reach from %s", s)
		}
		to, _ := farm.NextInstanceState(s, farm.Terminate)
		if to != farm.Terminating && to != farm.Terminated {
			t.Errorf("terminate leads from %s to %s", s, to)
		}
	}
}

func TestEveryStateOccurs(t *testing.T) {
	got := reach(farm.Scheduling)
	for _, s := range farm.InstanceStates {
		if !got[s] {
			t.Errorf("nothing leads from Scheduling to %s", s)
		}
	}
}

// TestBeforeStarted: without Started in the way only waiting, failure and the end
// can be seen; Stopping, Stopped and Pushing are behind it.
func TestBeforeStarted(t *testing.T) {
	got := reach(farm.Scheduling, farm.Started)
	for _, s := range []farm.InstanceState{farm.Stopping, farm.Stopped, farm.Pushing} {
		if got[s] {
			t.Errorf("%s can be seen before Started", s)
		}
	}
	for _, s := range []farm.InstanceState{farm.Scheduling, farm.Pulling} {
		for _, e := range farm.InstanceEvents {
			to, _ := farm.NextInstanceState(s, e)
			if !slices.Contains([]farm.InstanceState{
				farm.Scheduling, farm.Pulling, farm.Started, farm.Errored, farm.Terminating,
			}, to) {
				t.Errorf("%s leads from %s to %s", e, s, to)
			}
		}
	}
}

func TestGoneIsOnlyTheEndOfTerminated(t *testing.T) {
	for _, s := range farm.InstanceStates {
		for _, e := range farm.InstanceEvents {
			if to, _ := farm.NextInstanceState(s, e); to == farm.InstanceRemoved &&
				(s != farm.Terminated || e != farm.Expired) {
				t.Errorf("%s on %s removes the record", s, e)
			}
		}
	}
}

func TestUnknownStatesAndEventsMoveNothing(t *testing.T) {
	for _, s := range append(slices.Clone(farm.InstanceStates), farm.InstanceRemoved, "Nonsense") {
		if to, ok := farm.NextInstanceState(s, "nonsense"); ok || to != s {
			t.Errorf("%q on nonsense: %q, %v", s, to, ok)
		}
	}
	for _, e := range farm.InstanceEvents {
		for _, s := range []farm.InstanceState{farm.InstanceRemoved, "Nonsense"} {
			if to, ok := farm.NextInstanceState(s, e); ok || to != s {
				t.Errorf("%q on %s: %q, %v", s, e, to, ok)
			}
		}
	}
}

// TestAnyHistory drives an instance through random events, wanted or not, and holds
// what clients rely on against the whole history.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.SampledFrom(farm.InstanceEvents), 1, 60).Draw(t, "events")
		state, asked, started := farm.Scheduling, false, false
		for _, e := range events {
			to, ok := farm.NextInstanceState(state, e)
			if !ok && to != state {
				t.Fatalf("a void %s moved %s to %s", e, state, to)
			}
			asked = asked || (ok && (e == farm.Terminate || e == farm.SaveDone))
			started = started || to == farm.Started
			switch to {
			case farm.Terminating, farm.Terminated, farm.InstanceRemoved:
				if !asked {
					t.Fatalf("%s came without a termination", to)
				}
			case farm.Stopping, farm.Stopped, farm.Pushing:
				if !started {
					t.Fatalf("%s came before Started", to)
				}
				fallthrough
			default:
				if asked {
					t.Fatalf("%s came after a termination", to)
				}
			}
			state = to
		}
		if state != farm.InstanceRemoved {
			last, _ := farm.NextInstanceState(state, farm.Terminate)
			last, _ = farm.NextInstanceState(last, farm.TerminatedEvent)
			if last != farm.Terminated {
				t.Fatalf("terminate and terminated lead from %s to %s", state, last)
			}
		}
	})
}

// TestSaveAndInstanceAgree drives a save and its instance by the same events: the
// request is done exactly when the save moved the instance to its end.
func TestSaveAndInstanceAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state, save := farm.Pushing, farm.SavePending
		for _, e := range rapid.SliceOfN(rapid.SampledFrom(farm.InstanceEvents), 1, 30).Draw(t, "events") {
			pushing := state == farm.Pushing
			state, _ = farm.NextInstanceState(state, e)
			save, _ = farm.NextSaveState(save, e)
			if !pushing {
				return
			}
			if (state == farm.Pushing) != (save == farm.SavePending) {
				t.Fatalf("after %s the instance is %s and the request %s", e, state, save)
			}
			if save == farm.SaveSucceeded && state != farm.Terminating {
				t.Fatalf("the request is done and the instance is %s", state)
			}
		}
	})
}
