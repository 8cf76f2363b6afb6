package instances

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// explainBatch is how many reasons are requested at a time: the placer waits during each batch.
const explainBatch = 256

// explain sets the messages that are not in the records; it skips nil instances.
func (s *Instances) explain(list []View) {
	for batch := range slices.Chunk(list, explainBatch) {
		waits := false
		for i, l := range batch {
			if l.Instance == nil {
				continue
			}
			waits = waits || l.AwaitsPlacement()
			if l.State == farm.Pushing && l.Message == "" {
				batch[i].Message = s.stageOf(l.Instance)
			}
		}
		if waits {
			s.explainPending(batch)
		}
	}
}

// explainPending sets the messages of pending instances.
func (s *Instances) explainPending(batch []View) {
	list := make([]*farm.Instance, len(batch))
	for i, l := range batch {
		list[i] = l.Instance
	}
	for i, reason := range s.o.WaitReasons(list) {
		if reason != "" {
			batch[i].Message = reason
		}
	}
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
func (s *Instances) stageOf(inst *farm.Instance) string {
	if inst.Task == nil {
		return ""
	}
	save, _, ok := s.db.Tables.Saves.Get(inst.Task.ID)
	if !ok {
		return ""
	}
	text := cmp.Or(stages[save.Stage], save.Stage)
	if save.Stage == string(api.TaskPushing) {
		text = fmt.Sprintf("pushing %d %%", int(save.Progress*100))
	}
	return "saving: " + text
}
