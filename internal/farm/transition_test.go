package farm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

func TestEnterNotesEveryChange(t *testing.T) {
	at := time.UnixMilli(1_000)
	first := &farm.Instance{State: farm.Scheduling}
	first.EnterState(farm.Scheduling, at)
	if first.Transitions != nil {
		t.Errorf("entering the state it is in: %v", first.Transitions)
	}
	first.EnterState(farm.Started, at)
	second := first.Clone()
	second.Message = "broken"
	second.EnterState(farm.Errored, at.Add(time.Second))
	second.Message = "why"
	second.EnterState(farm.Terminating, at.Add(2*time.Second))
	want := []farm.Transition{
		{State: farm.Started, At: 1000, Reason: "broken"},
		{State: farm.Errored, At: 2000, Reason: "why"},
		{State: farm.Terminating, At: 3000},
	}
	if !slices.Equal(second.Transitions, want) {
		t.Errorf("transitions = %v", second.Transitions)
	}
	if len(first.Transitions) != 1 || first.Transitions[0].Reason != "" {
		t.Errorf("the record that was copied changed: %v", first.Transitions)
	}
	if got := want[1].Time(); !got.Equal(time.UnixMilli(2000)) {
		t.Errorf("time = %s", got)
	}
}

func TestTransitionsAreBounded(t *testing.T) {
	i := &farm.Instance{State: farm.Scheduling}
	for n := range 100 {
		i.Message = strings.Repeat("é", 1000)
		i.EnterState([]farm.InstanceState{farm.Pulling, farm.Scheduling}[n%2], time.UnixMilli(int64(n)))
	}
	var at []int64
	for _, tr := range i.Transitions {
		at = append(at, tr.At)
		if len(tr.Reason) > 240 {
			t.Errorf("a reason of %d bytes", len(tr.Reason))
		}
	}
	if got := fmt.Sprint(at); got != "[0 1 2 3 4 5 6 7 92 93 94 95 96 97 98 99]" {
		t.Errorf("kept are %s", got)
	}
}

func TestPastHasNoSecrets(t *testing.T) {
	i := &farm.Instance{
		ID: "i", State: farm.Terminating, Metadata: map[string]any{"token": "secret"},
		Options: farm.StartOptions{Script: []byte("secret"), VNCPassword: "secret"},
		Script: &farm.ScriptResult{
			ExitCode: 3, Stdout: []byte("secret"), Stderr: []byte("secret"),
			Errors: []string{"secret"},
		},
	}
	now := time.UnixMilli(5000)
	p := i.HistoryRecord(now)
	if text := fmt.Sprintf("%+v", *p); strings.Contains(text, "secret") {
		t.Errorf("past = %s", text)
	}
	if !p.Finished.Equal(now) || *p.ScriptCode != 3 || len(p.Transitions) != 1 ||
		p.Transitions[0].State != farm.Terminated {
		t.Errorf("past = %+v", p)
	}
	if i.State != farm.Terminating {
		t.Error("the record itself changed")
	}
	i.Finished = now.Add(-time.Second)
	if p := i.HistoryRecord(now); !p.Finished.Equal(i.Finished) {
		t.Errorf("finished = %s", p.Finished)
	}
}
