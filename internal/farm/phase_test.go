package farm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

func TestPhase(t *testing.T) {
	now := time.Unix(1e9, 0)
	script := farm.StartOptions{ScriptMonitoring: true, ScriptID: "s"}
	for _, tc := range []struct {
		inst farm.Instance
		want farm.Phase
	}{
		{farm.Instance{State: farm.Scheduling}, farm.PhaseQueued},
		{farm.Instance{State: farm.Scheduling, NodeID: "n"}, farm.PhasePlaced},
		{farm.Instance{State: farm.Pulling, NodeID: "n"}, farm.PhasePulling},
		{farm.Instance{State: farm.Scheduling, NodeID: "n", BootStarted: now}, farm.PhaseBooting},
		{farm.Instance{State: farm.Started, NodeID: "n", BootStarted: now}, farm.PhaseRunning},
		{farm.Instance{State: farm.Started, Options: script}, farm.PhaseStartupScript},
		{farm.Instance{State: farm.Started, Options: script, Script: &farm.ScriptResult{}}, farm.PhaseRunning},
		{farm.Instance{State: farm.Started, Options: farm.StartOptions{ScriptID: "s"}}, farm.PhaseRunning},
		{farm.Instance{State: farm.Started, Task: &farm.NodeTask{Kind: farm.TaskRestart}}, farm.PhaseRestarting},
		{farm.Instance{State: farm.Pushing, Task: &farm.NodeTask{Kind: farm.TaskSave}}, farm.PhaseSaving},
	} {
		if got := tc.inst.Phase(); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.inst, got, tc.want)
		}
	}
	for _, state := range farm.InstanceStates {
		if phase := (&farm.Instance{State: state}).Phase(); !slices.Contains(farm.Phases, phase) {
			t.Errorf("%s has the phase %q", state, phase)
		}
	}
}

func TestWithPhases(t *testing.T) {
	at := func(state farm.InstanceState, ms int64) farm.Transition { return farm.Transition{State: state, At: ms} }
	for _, tc := range []struct {
		name   string
		list   []farm.Transition
		booted int64
		want   string
	}{
		{"none", nil, time.Time{}.UnixMilli(), ""},
		{"it boots", nil, 5, "booting@5"},
		{"cached, as it is recorded", []farm.Transition{at(farm.Started, 9)}, 5, "booting@5 running@9"},
		{
			"pulled, as it is recorded",
			[]farm.Transition{at(farm.Pulling, 2), at(farm.Scheduling, 5), at(farm.Started, 9)},
			5,
			"pulling@2 booting@5 running@9",
		},
		{"restarted", []farm.Transition{at(farm.Started, 3), at(farm.Stopped, 4)}, 5, "running@3 stopped@4"},
		{
			"with a pull", []farm.Transition{
				at(farm.Scheduling, 1), at(farm.Pulling, 2), at(farm.Scheduling, 5), at(farm.Started, 9),
			}, 5, "queued@1 pulling@2 booting@5 running@9",
		},
		{
			"cached",
			[]farm.Transition{at(farm.Scheduling, 1), at(farm.Started, 9)},
			5,
			"queued@1 booting@5 running@9",
		},
		{"cached, and it boots", []farm.Transition{at(farm.Scheduling, 1)}, 5, "queued@1 booting@5"},
		{
			"an agent that does not report the boot",
			[]farm.Transition{at(farm.Scheduling, 1), at(farm.Started, 9)},
			time.Time{}.UnixMilli(), "queued@1 running@9",
		},
		{
			"failed",
			[]farm.Transition{at(farm.Scheduling, 1), at(farm.Errored, 9), at(farm.Terminating, 10)},
			5,
			"queued@1 booting@5 failed@9 terminating@10",
		},
	} {
		var got []string
		for _, p := range farm.WithPhases(tc.list, tc.booted) {
			got = append(got, fmt.Sprintf("%s@%d", p.Phase, p.At))
		}
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, text, tc.want)
		}
	}
}
