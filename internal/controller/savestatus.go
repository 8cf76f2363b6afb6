package controller

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/payloads"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// work is an instance with the request of its running save, as they were read; save is nil without
// one.
type work struct {
	inst *farm.Instance
	save *farm.SaveRequest

	rev, saveRev int64
}

// taskEvents maps the last stages of a task to the events of its instance.
var taskEvents = map[farm.TaskKind]map[api.TaskStage]farm.InstanceEvent{
	farm.TaskSave:    {api.TaskDone: farm.SaveDone, api.TaskFailed: farm.SaveFailed},
	farm.TaskRestart: {api.TaskDone: farm.Restarted},
}

// follow applies a node's status of its last ordered task. A status of an earlier one is ignored.
func (w *work) follow(status api.TaskStatus, now time.Time) {
	n := w.inst
	if !n.WorksOn(status.ID) {
		return
	}
	task := n.Task
	event, ends := taskEvents[task.Kind][status.Stage]
	if ends {
		to, _ := farm.NextInstanceState(n.State, event)
		n.Enter(to, now)
	}
	if ends || status.Stage == api.TaskFailed {
		n.Task = nil
	}
	switch task.Kind {
	case farm.TaskRestart:
		restarted(n, task.Restart, status)
	case farm.TaskSave:
		if w.save != nil {
			w.save = followed(w.save, event, status, now)
		}
	}
}

// restarted applies the changes of a finished restart.
func restarted(n *farm.Instance, o *farm.RestartOptions, status api.TaskStatus) {
	switch status.Stage {
	case api.TaskFailed:
		n.Message = "The restart failed: " + firstOf(status.Message, "its node does not say why")
	case api.TaskDone:
		if o.USBDevice != nil {
			n.Options.USBDevice, n.USB = *o.USBDevice, o.Device
		}
		if o.VNCPassword != nil {
			n.Options.VNCPassword = *o.VNCPassword
		}
	}
}

// The minimum progress of a push that is written, and the time after which any progress is: a push
// that advances must not be considered stuck.
const (
	progressStep = 0.05
	progressTime = time.Minute
)

// followed returns the request after a status of its task and the resulting event; the same one
// when nothing in the status justifies a write.
func followed(s *farm.SaveRequest, event farm.InstanceEvent, status api.TaskStatus, now time.Time) *farm.SaveRequest {
	n := *s
	n.Status, _ = farm.NextSaveState(s.Status, event)
	n.Updated = now
	n.Stage, n.Progress = string(status.Stage), min(max(status.Progress, 0), 1)
	if s.Script == nil && status.Script != nil {
		n.Script = nodeinput.ScriptResult(status.Script)
		n.Script.Stdout, n.Script.Stderr = nil, nil
		n.StdoutBytes = min(len(status.Script.Stdout), payloads.MaxOutput)
		n.StderrBytes = min(len(status.Script.Stderr), payloads.MaxOutput)
	}
	switch status.Stage {
	case api.TaskDone:
		n.Progress = 1
		if status.Version != nil {
			n.ContentID = status.Version.ContentID
		}
	case api.TaskFailed:
		n.ErrorMessage, n.ErrorType = firstOf(status.Message, "The node does not say why the save failed"), farm.SaveErrorNode
		if status.Code != 0 {
			n.ErrorMessage, n.ErrorType, n.ErrorCode = scriptFailed, "", status.Code
		}
	}
	moved := math.Abs(n.Progress - s.Progress)
	if n.Stage == s.Stage && n.Script == s.Script && moved < progressStep &&
		(moved == 0 || now.Sub(s.Updated) < progressTime) {
		return s
	}
	return &n
}

// endSave ends a request whose instance, nil when it does not exist, no longer works on it. One
// that ended already stays as it is.
func (c *Controller) endSave(ctx context.Context, w store.Writer, id string, inst *farm.Instance) error {
	_, err := store.Update(ctx, w, c.tables.Saves, id, func(s *farm.SaveRequest) (*farm.SaveRequest, error) {
		return s.AfterInstance(inst, c.now()), nil
	})
	return err
}

// stages are the stages of a save in words.
var stages = map[string]string{
	"":                       "waiting for its node",
	string(api.TaskAccepted): "about to begin",
	string(api.TaskScript):   "its script runs",
	string(api.TaskSaving):   "writing disks and state",
	string(api.TaskTesting):  "testing the saved state",
}

// stageOf returns the stage of an instance's save in words; "" when that is not known.
func (c *Controller) stageOf(inst *farm.Instance) string {
	if inst.Task == nil {
		return ""
	}
	s, _, ok := c.tables.Saves.Get(inst.Task.ID)
	if !ok {
		return ""
	}
	text := firstOf(stages[s.Stage], s.Stage)
	if s.Stage == string(api.TaskPushing) {
		text = fmt.Sprintf("pushing %d %%", int(s.Progress*100))
	}
	return "saving: " + text
}
