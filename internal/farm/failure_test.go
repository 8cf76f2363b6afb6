package farm_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestFailureInfos: each class has a summary and a remedy that are whole sentences without a path.
func TestFailureInfos(t *testing.T) {
	seen := map[farm.FailureClass]bool{}
	for _, info := range farm.FailureInfos() {
		if seen[info.Class] || info.Class.Info() != info {
			t.Errorf("%s is not found, or listed twice", info.Class)
		}
		seen[info.Class] = true
		for _, text := range []string{info.Summary, info.Remedy} {
			if !strings.HasSuffix(text, ".") || strings.Contains(text, "/") || len(text) > 160 {
				t.Errorf("%s: %q", info.Class, text)
			}
		}
	}
	if got := farm.FailureClass("new").Info().Class; got != farm.FailureUnknown {
		t.Errorf("a class of a later release is %s", got)
	}
}

func TestFailureOf(t *testing.T) {
	inner := errors.New("x")
	disk := farm.MarkFailure(inner, farm.FailureDisk, "")
	for _, tc := range []struct {
		name string
		err  error
		want farm.Failure
	}{
		{"no mark", inner, farm.Failure{}},
		{"class", disk, farm.Failure{Class: farm.FailureDisk}},
		{
			"a step around it", farm.MarkFailure(fmt.Errorf("y: %w", disk), "", farm.StepBoot),
			farm.Failure{Class: farm.FailureDisk, Step: farm.StepBoot},
		},
		{
			"the inner mark counts",
			farm.MarkFailure(errors.Join(errors.New("y"), disk), farm.FailureMemory, farm.StepRun),
			farm.Failure{Class: farm.FailureDisk, Step: farm.StepRun},
		},
	} {
		if got := farm.FailureOf(tc.err); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	if farm.MarkFailure(nil, farm.FailureDisk, farm.StepRun) != nil {
		t.Error("no error has a mark")
	}
	if !errors.Is(disk, inner) || disk.Error() != "x" {
		t.Errorf("the marked error is %v", disk)
	}
}

func TestReportedFailure(t *testing.T) {
	for _, tc := range []struct{ class, step, want string }{
		{"disk", "pull", "disk pull"},
		{"new", "pull", "unknown pull"},
		{"disk", "new", "disk boot"},
		{"", "", "unknown boot"},
	} {
		f := farm.ReportedFailure(tc.class, tc.step, farm.StepBoot)
		if got := fmt.Sprint(f.Class, " ", f.Step); got != tc.want {
			t.Errorf("%q %q: %s, want %s", tc.class, tc.step, got, tc.want)
		}
	}
}

// TestFailureWithoutReport: the controller knows the step of an instance that fails without a report of its node.
func TestFailureWithoutReport(t *testing.T) {
	now := time.Unix(1e9, 0)
	script := farm.StartOptions{ScriptMonitoring: true, ScriptID: "s"}
	for _, tc := range []struct {
		inst farm.Instance
		want farm.FailureStep
	}{
		{farm.Instance{State: farm.Scheduling}, farm.StepPlacement},
		{farm.Instance{State: farm.Scheduling, NodeID: "n"}, farm.StepStartVM},
		{farm.Instance{State: farm.Pulling, NodeID: "n"}, farm.StepPull},
		{farm.Instance{State: farm.Started, NodeID: "n"}, farm.StepRun},
		{farm.Instance{State: farm.Started, NodeID: "n", Options: script}, farm.StepStartupScript},
		{farm.Instance{State: farm.Stopping, NodeID: "n"}, farm.StepStartupScript},
		{farm.Instance{State: farm.Pushing, NodeID: "n"}, farm.StepSave},
	} {
		tc.inst.Transitions = []farm.Transition{{State: tc.inst.State}}
		if tc.inst.ShownFailure() != nil {
			t.Errorf("%s has a failure", tc.inst.State)
		}
		got := tc.inst.AfterStepTimeout(now, farm.FailureNodeLost, "lost")
		if f := got.ShownFailure(); f == nil || *f != (farm.Failure{Class: farm.FailureNodeLost, Step: tc.want}) {
			t.Errorf("%s: %+v, want step %s", tc.inst.State, f, tc.want)
		}
		if past := got.HistoryRecord(now); past.Failure == nil || past.Failure.Step != tc.want {
			t.Errorf("%s: in the history %+v", tc.inst.State, past.Failure)
		}
		earlier := got.Clone() // as a release without failures has stored it
		earlier.Failure = nil
		if f := earlier.ShownFailure(); f == nil || *f != (farm.Failure{Class: farm.FailureUnknown, Step: tc.want}) {
			t.Errorf("%s: of an earlier release %+v, want step %s", tc.inst.State, f, tc.want)
		}
		if !slices.Contains(farm.FailureSteps, tc.want) {
			t.Errorf("%s is not in the list of steps", tc.want)
		}
	}
}
