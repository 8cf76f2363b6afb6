package instancestatus

import (
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// TestApply applies a status to an instance on its node.
func TestApply(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	for _, tc := range []struct {
		name   string
		inst   farm.Instance
		status api.InstanceStatus
		state  farm.InstanceState
		same   bool // the record does not change
	}{
		{
			"accepted",
			farm.Instance{State: farm.Scheduling},
			api.InstanceStatus{No: 1, Phase: api.PhaseAccepted},
			farm.Scheduling, true,
		},
		{
			"pull",
			farm.Instance{State: farm.Scheduling},
			api.InstanceStatus{No: 1, Phase: api.PhasePulling, Progress: 0.5},
			farm.Pulling, false,
		},
		{
			"reports in between are missing",
			farm.Instance{State: farm.Scheduling},
			api.InstanceStatus{No: 5, Phase: api.PhaseScriptOK},
			farm.Started, false,
		},
		{
			"an earlier status",
			farm.Instance{State: farm.Started, StatusNumber: 5},
			api.InstanceStatus{No: 4, Phase: api.PhaseFailed},
			farm.Started, true,
		},
		{
			"a final status of a node that counts from the start again",
			farm.Instance{State: farm.Terminating, StatusNumber: 5},
			api.InstanceStatus{No: 1, Phase: api.PhaseTerminated},
			farm.Terminated, false,
		},
		{
			"an end without a request",
			farm.Instance{State: farm.Started},
			api.InstanceStatus{No: 1, Phase: api.PhaseTerminated},
			farm.Errored, false,
		},
		{
			"anything after the end",
			farm.Instance{State: farm.Terminated},
			api.InstanceStatus{No: 1, Phase: api.PhaseRunning},
			farm.Terminated, true,
		},
		{
			"a script that fails",
			farm.Instance{State: farm.Scheduling},
			api.InstanceStatus{No: 1, Phase: api.PhaseScriptFailed},
			farm.Stopping, false,
		},
	} {
		inst := tc.inst
		got := Apply(&inst, tc.status, now)
		if got.State != tc.state || (got == &inst) != tc.same {
			t.Errorf("%s: %s, same record: %t; want %s, %t", tc.name, got.State, got == &inst, tc.state, tc.same)
		}
		if again := Apply(got, tc.status, now.Add(time.Second)); again != got {
			t.Errorf("%s: the same status changes the record again", tc.name)
		}
	}
}

// TestScriptOutput: the output of a script that runs is kept until its result comes, also if its VM ends before.
func TestScriptOutput(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	output := &api.ScriptOutput{Stdout: strings.Repeat("x", 20<<10), Stderr: "err"}
	inst := Apply(&farm.Instance{State: farm.Scheduling},
		api.InstanceStatus{No: 1, Phase: api.PhaseRunning, ScriptOutput: output}, now)
	if o := inst.ScriptOutput; inst.State != farm.Started || o == nil || string(o.Stderr) != "err" ||
		len(o.Stdout) != 16<<10 {
		t.Fatalf("while it runs: %+v", o)
	}
	if Apply(inst, api.InstanceStatus{No: 2, Phase: api.PhaseRunning, ScriptOutput: output}, now) != inst {
		t.Error("the same output changes the record")
	}
	lost := Apply(inst, api.InstanceStatus{No: 2, Phase: api.PhaseStopped}, now)
	if lost.State != farm.Errored || lost.ScriptOutput == nil {
		t.Errorf("after the end of the VM: %s, %+v", lost.State, lost.ScriptOutput)
	}
	ended := Apply(inst, api.InstanceStatus{No: 2, Phase: api.PhaseScriptOK, Script: &api.ScriptStatus{}}, now)
	if ended.ScriptOutput != nil || ended.Script == nil {
		t.Errorf("after the result: %+v, %+v", ended.ScriptOutput, ended.Script)
	}
	late := Apply(ended, api.InstanceStatus{No: 3, Phase: api.PhaseScriptOK, ScriptOutput: output}, now)
	if late.ScriptOutput != nil {
		t.Errorf("output after the result: %+v", late.ScriptOutput)
	}
}

// TestFailure: the failure is what the node reports, or follows from the event and the state.
func TestFailure(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	reported := &api.NodeFailure{Class: "disk", Step: "create_disk"}
	for _, tc := range []struct {
		name   string
		inst   farm.Instance
		status api.InstanceStatus
		want   farm.Failure
	}{
		{
			"reported",
			farm.Instance{State: farm.Scheduling, NodeID: "n"},
			api.InstanceStatus{Phase: api.PhaseFailed, Failure: reported},
			farm.Failure{Class: farm.FailureDisk, Step: farm.StepCreateDisk},
		},
		{
			"a class of a later release",
			farm.Instance{State: farm.Scheduling, NodeID: "n"},
			api.InstanceStatus{Phase: api.PhaseFailed, Failure: &api.NodeFailure{Class: "x", Step: "y"}},
			farm.Failure{Class: farm.FailureUnknown, Step: farm.StepStartVM},
		},
		{
			"an old agent, in a pull",
			farm.Instance{State: farm.Pulling, NodeID: "n"},
			api.InstanceStatus{Phase: api.PhaseFailed},
			farm.Failure{Class: farm.FailureUnknown, Step: farm.StepPull},
		},
		{
			"an old agent, stopped",
			farm.Instance{State: farm.Started, NodeID: "n"},
			api.InstanceStatus{Phase: api.PhaseStopped},
			farm.Failure{Class: farm.FailureGuestStopped, Step: farm.StepRun},
		},
		{
			"stopped, and the start was not reported",
			farm.Instance{State: farm.Scheduling, NodeID: "n"},
			api.InstanceStatus{Phase: api.PhaseStopped},
			farm.Failure{Class: farm.FailureGuestStopped, Step: farm.StepRun},
		},
		{
			"vanished",
			farm.Instance{State: farm.Started, NodeID: "n"},
			api.InstanceStatus{Phase: api.PhaseVanished},
			farm.Failure{Class: farm.FailureVMLost, Step: farm.StepRun},
		},
		{
			"script",
			farm.Instance{
				State: farm.Started, NodeID: "n", Options: farm.StartOptions{ScriptOnFailure: farm.KeepVM},
			},
			api.InstanceStatus{Phase: api.PhaseScriptFailed, Script: &api.ScriptStatus{Code: 1}},
			farm.Failure{Class: farm.FailureStartupScript, Step: farm.StepStartupScript},
		},
		{
			"script, and its VM is stopped",
			farm.Instance{State: farm.Stopping, NodeID: "n"},
			api.InstanceStatus{Phase: api.PhaseScriptEnded, Script: &api.ScriptStatus{Code: 1}},
			farm.Failure{Class: farm.FailureStartupScript, Step: farm.StepStartupScript},
		},
	} {
		tc.status.No = 1
		got := Apply(&tc.inst, tc.status, now)
		if got.Failure == nil || *got.Failure != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got.Failure, tc.want)
		}
	}
}

// TestBootStarted: the begin of the boot is recorded once, and again after another pull.
func TestBootStarted(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	inst := &farm.Instance{State: farm.Scheduling, NodeID: "n"}
	for i, tc := range []struct {
		phase api.Phase
		want  farm.Phase
	}{
		{api.PhaseAccepted, farm.PhasePlaced},
		{api.PhaseStarting, farm.PhaseBooting},
		{api.PhasePulling, farm.PhasePulling},
		{api.PhaseStarting, farm.PhaseBooting},
		{api.PhaseStarting, farm.PhaseBooting},
		{api.PhaseRunning, farm.PhaseRunning},
	} {
		inst = Apply(inst, api.InstanceStatus{No: int64(i + 1), Phase: tc.phase}, now.Add(time.Duration(i)*time.Second))
		if got := inst.Phase(); got != tc.want {
			t.Errorf("%d: %s, want %s", i, got, tc.want)
		}
	}
	if want := now.Add(3 * time.Second); !inst.BootStarted.Equal(want) {
		t.Errorf("the boot began at %s, want %s", inst.BootStarted, want)
	}
}

// TestApplyToSave: a save ends with its task, and with its instance.
func TestApplyToSave(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	for _, tc := range []struct {
		name   string
		phase  api.Phase
		task   api.TaskStatus
		state  farm.InstanceState
		status farm.SaveStatus
		text   string
	}{
		{
			"progress", api.PhaseRunning,
			api.TaskStatus{ID: "s", Stage: api.TaskPushing},
			farm.Pushing, farm.SavePending,
			"",
		},
		{
			"failure", api.PhaseRunning,
			api.TaskStatus{ID: "s", Stage: api.TaskFailed, Message: "full"},
			farm.Started, farm.SaveError, "full",
		},
		{
			"script", api.PhaseRunning,
			api.TaskStatus{ID: "s", Stage: api.TaskFailed, Code: 3},
			farm.Started, farm.SaveError, scriptFailed,
		},
		{
			"failure and a stop", api.PhaseStopped,
			api.TaskStatus{ID: "s", Stage: api.TaskFailed, Message: "full"},
			farm.Errored, farm.SaveError, "full",
		},
		{
			"another task", api.PhaseRunning,
			api.TaskStatus{ID: "old", Stage: api.TaskFailed},
			farm.Pushing, farm.SavePending, "",
		},
		{
			"end of the VM", api.PhaseVanished,
			api.TaskStatus{ID: "s", Stage: api.TaskSaving},
			farm.Errored,
			farm.SaveError, "The instance failed before the save had ended: VM no longer exists on its node",
		},
	} {
		old := state{
			inst: &farm.Instance{
				State: farm.Pushing, Started: now, Task: &farm.NodeTask{ID: "s", Kind: farm.TaskSave},
			},
			save: &farm.SaveRequest{ID: "s", Status: farm.SavePending},
		}
		next := apply(old, api.InstanceStatus{No: 1, Phase: tc.phase, Task: &tc.task}, now)
		if next.inst.State != tc.state || next.save.Status != tc.status || next.save.ErrorMessage != tc.text {
			t.Errorf("%s: instance %s, save %s %q; want %s, %s %q", tc.name, next.inst.State, next.save.Status,
				next.save.ErrorMessage, tc.state, tc.status, tc.text)
		}
		if works := next.inst.WorksOn("s"); works != (tc.status == farm.SavePending) {
			t.Errorf("%s: the instance works on the save: %t", tc.name, works)
		}
	}
}
