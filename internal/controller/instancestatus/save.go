package instancestatus

import (
	"cmp"
	"math"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// scriptFailed is the exact message of a save that its script has failed.
const scriptFailed = "Script execution failed"

// taskEvents maps the last stages of a task to the events of its instance.
var taskEvents = map[farm.NodeTaskKind]map[api.TaskStage]farm.InstanceEvent{
	farm.TaskSave:    {api.TaskDone: farm.SaveDone, api.TaskFailed: farm.SaveFailed},
	farm.TaskRestart: {api.TaskDone: farm.Restarted},
}

// applyTask applies a node's status of its last ordered task. A status of an earlier one is ignored.
func (s *state) applyTask(status api.TaskStatus, now time.Time) {
	n := s.inst
	if !n.WorksOn(status.ID) {
		return
	}
	task := n.Task
	event, ends := taskEvents[task.Kind][status.Stage]
	if ends {
		to, _ := farm.NextInstanceState(n.State, event)
		n.EnterState(to, now)
	}
	if ends || status.Stage == api.TaskFailed {
		n.Task = nil
	}
	switch task.Kind {
	case farm.TaskRestart:
		applyRestart(n, task.Restart, status)
	case farm.TaskSave:
		if s.save != nil {
			s.save = applyToSave(s.save, event, status, now)
		}
	}
}

// applyRestart applies the changes of a finished restart.
func applyRestart(n *farm.Instance, o *farm.RestartOptions, status api.TaskStatus) {
	switch status.Stage {
	case api.TaskFailed:
		n.Message = "The restart failed: " + cmp.Or(status.Message, "its node does not say why")
	case api.TaskDone:
		if o.USBDevice != nil {
			n.Options.USBDevice, n.USBLocation = *o.USBDevice, o.Device
		}
		if o.VNCPassword != nil {
			n.Options.VNCPassword = *o.VNCPassword
		}
	}
}

// The minimum progress of a push that is written, and the time after which any progress is: a push
// that advances must not be considered stuck.
const (
	minProgress    = 0.05
	maxProgressAge = time.Minute
)

// applyToSave returns the request after a status of its task and the resulting event; the same one
// when nothing in the status justifies a write.
func applyToSave(
	s *farm.SaveRequest, event farm.InstanceEvent, status api.TaskStatus, now time.Time,
) *farm.SaveRequest {
	n := *s
	n.Status, _ = farm.NextSaveState(s.Status, event)
	n.Updated = now
	n.Stage, n.Progress = string(status.Stage), min(max(status.Progress, 0), 1)
	if s.Script == nil && status.Script != nil {
		n.Script = nodeinput.ScriptResult(status.Script)
		n.Script.Stdout, n.Script.Stderr = nil, nil
		n.StdoutBytes = min(len(status.Script.Stdout), record.MaxSaveOutput)
		n.StderrBytes = min(len(status.Script.Stderr), record.MaxSaveOutput)
	}
	switch status.Stage {
	case api.TaskDone:
		n.Progress = 1
		if status.Version != nil {
			n.ContentID = status.Version.ContentID
		}
	case api.TaskFailed:
		n.ErrorMessage, n.ErrorType = cmp.Or(status.Message, "The node does not say why the save failed"),
			farm.SaveErrorNode
		if status.Code != 0 {
			n.ErrorMessage, n.ErrorType, n.ErrorCode = scriptFailed, "", status.Code
		}
	}
	moved := math.Abs(n.Progress - s.Progress)
	if n.Stage == s.Stage && n.Script == s.Script && moved < minProgress &&
		(moved == 0 || now.Sub(s.Updated) < maxProgressAge) {
		return s
	}
	return &n
}
