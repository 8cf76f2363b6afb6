package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// TestFit: plain output stays whole, and output that JSON would expand stays below the limit.
func TestFit(t *testing.T) {
	plain := strings.Repeat("a line of output\n", hv.MaxOutputBytes/17)
	if shortenOutput(plain) != plain {
		t.Error("plain output was cut")
	}
	for name, text := range map[string]string{
		"control characters": strings.Repeat("\x01", hv.MaxOutputBytes),
		"no text":            lastText([]byte(strings.Repeat("a\xff", hv.MaxOutputBytes/2)), hv.MaxOutputBytes),
		"cut in a letter":    strings.Repeat("\x01\x01ü", hv.MaxOutputBytes/2),
	} {
		got := shortenOutput(text)
		raw, err := json.Marshal(got)
		if err != nil || len(raw) > maxReportedOutput || len(got) < maxReportedOutput/6-16 {
			t.Errorf("%s: %d bytes, %d as JSON, %v", name, len(got), len(raw), err)
		}
	}
}

// TestOutputFiles: a result is read back together with its output, and not without it.
func TestOutputFiles(t *testing.T) {
	dir := t.TempDir()
	if readOutput(dir, nil) != nil || readOutput(dir, &api.ScriptStatus{Code: 1}) != nil {
		t.Error("an output that is not there was read")
	}
	if err := writeOutput(dir, &api.ScriptStatus{Stdout: "out", Stderr: "err"}); err != nil {
		t.Fatal(err)
	}
	if got := readOutput(dir, &api.ScriptStatus{Code: 1, TimedOut: true}); got == nil || got.Stdout != "out" ||
		got.Stderr != "err" || got.Code != 1 || !got.TimedOut {
		t.Errorf("got %+v", got)
	}
}

// TestOutputIsReportedAgain: the output is sent again to a controller that asks for everything.
func TestOutputIsReportedAgain(t *testing.T) {
	in := newInstance(journal.Entry{State: journal.State{Task: &journal.Task{Stage: api.TaskPushing}}})
	in.taskReport.scriptOutput = &api.ScriptStatus{Stdout: "said"}
	said := func() bool { return in.taskReport.status(in.state.Task).Script != nil }
	first := said()
	in.recordAck(api.InstanceStatus{Task: in.taskReport.status(in.state.Task)})
	second := said()
	in.resendStatus()
	if third := said(); !first || second || !third {
		t.Errorf("told %v, then %v, then %v", first, second, third)
	}
}

// TestNodeReportsWhatItCan: the node's description contains what saved states depend on.
func TestNodeReportsWhatItCan(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		time.Sleep(time.Second)
		info := w.control.seen()[0].Info
		host, err := w.host.Describe(t.Context())
		if err != nil || info == nil || info.HostCPU != host.HostCPU ||
			len(info.Abilities) != len(host.Capabilities)+1 ||
			!slices.Contains(info.Abilities, farm.AbilityTakeOver) {
			t.Errorf("told %+v, the driver says %+v", info, host)
		}
	})
}
