package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// taskReport is what the reports of a task need in addition to its journal. The instance's mu
// guards it.
type taskReport struct {
	pushProgress   float64           // 0..1, of the push
	scriptOutput   *api.ScriptStatus // the script's result with its output; nil: none, or acknowledged and removed
	outputAcked    bool              // the controller has the output
	pendingRefusal *api.TaskStatus   // of another task, to be reported once
	refusalReasons map[string]string // refused task -> reason
}

// status returns the status of the task. The script's output is included until the controller has
// it, and once more with the result.
func (k *taskReport) status(t *journal.Task) *api.TaskStatus {
	if k.pendingRefusal != nil {
		return k.pendingRefusal
	}
	if t == nil {
		return nil
	}
	s := &api.TaskStatus{ID: t.ID(), Stage: t.Stage}
	switch t.Stage {
	case api.TaskPushing:
		s.Progress = k.pushProgress
	case api.TaskDone:
		s.Version = t.Version
	case api.TaskFailed:
		s.Message, s.Code = t.Failure.Message, t.Failure.Code
	}
	if !k.outputAcked || t.IsOver() {
		s.Script = k.scriptOutput
	}
	return s
}

// recordAck records what the controller received; it reports whether that was the refusal.
func (k *taskReport) recordAck(sent *api.TaskStatus) bool {
	if sent == nil {
		return false
	}
	if sent == k.pendingRefusal {
		k.pendingRefusal = nil
		return true
	}
	k.outputAcked = k.outputAcked || sent.Script != nil
	return false
}

// resendStatus has the output sent once more.
func (in *instance) resendStatus() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.taskReport.outputAcked = false
}

// needsTaskCleanupLocked reports whether the output is still stored although its task is over and the
// controller has received everything.
func (in *instance) needsTaskCleanupLocked() bool {
	return in.state.Task != nil && in.state.Task.IsOver() && in.taskReport.scriptOutput != nil &&
		in.ackedNumber >= in.state.Number
}

// cleanUpTask removes what is left of a task once its result is acknowledged.
func (a *Agent) cleanUpTask(in *instance) error {
	in.mu.Lock()
	t := in.state.Task
	due := in.needsTaskCleanupLocked()
	in.mu.Unlock()
	if !due {
		return nil
	}
	if dir := a.saveDir(t); dir != "" {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.state.Task == t {
		in.taskReport.scriptOutput = nil
	}
	return nil
}

// maxReportedOutput limits the bytes of one output stream in a report; JSON may use six bytes for one.
const maxReportedOutput = 3 << 20

// shortenOutput shortens an output whose JSON would be too long for a report.
func shortenOutput(text string) string {
	if raw, err := json.Marshal(text); err == nil && len(raw) <= maxReportedOutput {
		return text
	}
	// The 8 bytes are for the quotes and a character that was cut.
	return strings.ToValidUTF8(string(farm.LastOutput([]byte(text), maxReportedOutput/6-8, false)), "\uFFFD")
}

// The files of a script's output in the directory of its save.
const (
	stdoutFile = "stdout"
	stderrFile = "stderr"
)

// writeOutput stores the output of a script for an agent that is started later.
func writeOutput(dir string, s *api.ScriptStatus) error {
	return errors.Join(
		datadir.WriteFile(filepath.Join(dir, stdoutFile), []byte(s.Stdout)),
		datadir.WriteFile(filepath.Join(dir, stderrFile), []byte(s.Stderr)),
	)
}

// readOutput returns the result of a script with the output from its files. It returns nil when
// the script has none, or its files were removed because the controller has them.
func readOutput(dir string, outcome *api.ScriptStatus) *api.ScriptStatus {
	if outcome == nil {
		return nil
	}
	s := *outcome
	for name, into := range map[string]*string{stdoutFile: &s.Stdout, stderrFile: &s.Stderr} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Size() > hv.MaxOutputBytes*3 { // invalid UTF-8 grows when it is replaced
			return nil
		}
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil
		}
		*into = string(raw)
	}
	return &s
}
