package journal

import (
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
)

// Task is a save or a restart of an instance: what was ordered and how far it is. An
// instance has at most one that is not over; the last one stays to be told.
type Task struct {
	// Order is what was accepted. Once the task is over it holds no secret any more.
	Order api.Order     `json:"order"`
	Stage api.TaskStage `json:"stage"`
	// Run is when the VM's run began that a restart ends: the restart has happened
	// when the VM is in another one.
	Run time.Time `json:"run,omitzero"`
	// ScriptBegun is set before the save's script runs. With no Script beside it
	// after a restart of the agent, the outcome is unknown.
	ScriptBegun bool `json:"script_begun,omitempty"`
	// Script is how the script ended; its output is in files of the save.
	Script *api.ScriptStatus `json:"script,omitempty"`
	// Saved names the files of the save once they are whole.
	Saved *hv.Saved `json:"saved,omitempty"`
	// Version is what was published, and Roots names the layers of its files until
	// the task is over.
	Version *api.PushResult   `json:"version,omitempty"`
	Roots   map[string]string `json:"roots,omitempty"`
	// Failure is why the task fails. It is set before what was done is undone, and
	// told when that has happened.
	Failure *TaskFailure `json:"failure,omitempty"`
}

// TaskFailure is why a task failed.
type TaskFailure struct {
	Message string `json:"message"`
	Code    int    `json:"code,omitempty"` // exit code of the script that failed it
}

// Over reports whether nothing is to be done for the task any more. Nobody's task is over.
func (t *Task) Over() bool {
	return t == nil || t.Stage == api.TaskDone || t.Stage == api.TaskFailed
}

// ID names the task; nobody's has none.
func (t *Task) ID() string {
	if t == nil {
		return ""
	}
	return t.Order.Task
}
