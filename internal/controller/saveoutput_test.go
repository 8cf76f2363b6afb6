package controller

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/payloads"
	"github.com/buildyard/buildyard/internal/controller/saves"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestOutputOfASave(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		s := c.save(a, o, func(ask *saves.Request) { ask.Script = []byte("true") })
		var out []byte
		for n := 0; len(out) < payloads.MaxOutput+160; n++ {
			out = fmt.Appendf(out, "%d\n", n)
		}
		ended := at(s, api.TaskSaving, func(ts *api.TaskStatus) {
			ts.Script = &api.ScriptStatus{Code: 3, Stdout: string(out), Stderr: "\x00few", Errors: []string{"e"}}
		})
		for range 3 { // the same state, reported again and again
			a.say(o, api.PhaseRunning, ended)
		}
		r := c.wantSave(s.Task, farm.SavePending, "")
		want := &farm.ScriptResult{ExitCode: 3, Stdout: farm.LastOutput(out, payloads.MaxOutput,
			false), Stderr: []byte("\x00few"), Errors: []string{"e"}}
		got := *r.Script
		if !bytes.Equal(got.Stdout, want.Stdout) {
			t.Errorf("%d bytes of output, want the last %d", len(got.Stdout), len(want.Stdout))
		}
		if !bytes.HasPrefix(got.Stdout, []byte(farm.OutputTruncatedLine)) {
			t.Error("the output does not say that it was cut")
		}
		got.Stdout, want.Stdout = nil, nil // a comparison of a MiB takes seconds
		if d := cmp.Diff(want, &got); d != "" {
			t.Errorf("result (-want +got):\n%s", d)
		}
		if list := c.Saves.List("", 10, nil); len(list) != 1 ||
			!bytes.Equal(list[0].Script.Stdout, farm.LastOutput(out, 4<<10, false)) {
			t.Error("the list does not have the end of the output")
		}
		a.say(o, api.PhaseRunning, at(s, api.TaskFailed, func(ts *api.TaskStatus) { ts.Code = 3 }))
		if r := c.wantSave(s.Task, farm.SaveError,
			"Script execution failed"); len(r.Script.Stdout) != payloads.MaxOutput {
			t.Error("the output went with the end of the request")
		}
		if stored, _, _ := c.tables.Saves.Get(s.Task); len(stored.Script.Stdout) > 0 {
			t.Error("the output is in the record")
		}
	})
}
