package journal

import (
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
)

// Task is a save or a restart of an instance: the order and its progress. An instance has at most
// one unfinished task; the last one stays until it is reported.
type Task struct {
	// Order is the accepted order. Once the task is over it no longer contains secrets.
	Order api.Order     `json:"order"`
	Stage api.TaskStage `json:"stage"`
	// RunStartedAt is the start time of the VM's run that a restart ends: the restart is done when the VM is
	// in another run.
	RunStartedAt time.Time `json:"run,omitzero"`
	// ScriptBegun is set before the save's script runs. If Script is nil after a restart of the
	// agent, the result is unknown.
	ScriptBegun bool `json:"script_begun,omitempty"`
	// Script is the result of the script; its output is in files of the save.
	Script *api.ScriptStatus `json:"script,omitempty"`
	// Saved names the files of the save once they are complete.
	Saved *hv.SaveResult `json:"saved,omitempty"`
	// Version is the published version, and Roots has the digests of its files' layers until the
	// task is over.
	Version  *api.PushResult   `json:"version,omitempty"`
	ChainIDs map[string]string `json:"roots,omitempty"`
	// Failure is why the task fails. It is set before the task is rolled back, and reported afterwards.
	Failure *TaskFailure `json:"failure,omitempty"`
}

// TaskFailure is why a task failed.
type TaskFailure struct {
	Message string `json:"message"`
	Code    int    `json:"code,omitempty"` // exit code of the script that failed it
}

// IsOver reports whether nothing is left to do for the task. A nil task is over.
func (t *Task) IsOver() bool {
	return t == nil || t.Stage == api.TaskDone || t.Stage == api.TaskFailed
}

// ID returns the ID of the task; "" for a nil task.
func (t *Task) ID() string {
	if t == nil {
		return ""
	}
	return t.Order.Task
}
