package instancestatus

import (
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
