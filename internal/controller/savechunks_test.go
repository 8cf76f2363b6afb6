package controller

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

func TestOutputOfASave(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		s := c.save(a, o, func(ask *SaveImageRequest) { ask.Script = []byte("true") })
		var out []byte
		for n := 0; len(out) < maxSaveOutput+160; n++ {
			out = fmt.Appendf(out, "%d\n", n)
		}
		ended := at(s, api.TaskSaving, func(ts *api.TaskStatus) {
			ts.Script = &api.ScriptStatus{Code: 3, Stdout: string(out), Stderr: "\x00few", Errors: []string{"e"}}
		})
		for range 3 { // the same state, reported again and again
			a.say(o, api.PhaseRunning, ended)
		}
		r := c.wantSave(s.Task, farm.SavePending, "")
		want := &farm.ScriptResult{Code: 3, Stdout: farm.LastOutput(out, maxSaveOutput,
			false), Stderr: []byte("\x00few"), Errors: []string{"e"}}
		got := *r.Script
		if !bytes.Equal(got.Stdout, want.Stdout) {
			t.Errorf("%d bytes of output, want the last %d", len(got.Stdout), len(want.Stdout))
		}
		if !bytes.HasPrefix(got.Stdout, []byte(farm.OutputCut)) {
			t.Error("the output does not say that it was cut")
		}
		got.Stdout, want.Stdout = nil, nil // a comparison of a MiB takes seconds
		if d := cmp.Diff(want, &got); d != "" {
			t.Errorf("result (-want +got):\n%s", d)
		}
		if list := c.Saves("", 10, nil); len(list) != 1 ||
			!bytes.Equal(list[0].Script.Stdout, farm.LastOutput(out, listedOutput, false)) {
			t.Error("the list does not have the end of the output")
		}
		a.say(o, api.PhaseRunning, at(s, api.TaskFailed, func(ts *api.TaskStatus) { ts.Code = 3 }))
		if r := c.wantSave(s.Task, farm.SaveError, "Script execution failed"); len(r.Script.Stdout) != maxSaveOutput {
			t.Error("the output went with the end of the request")
		}
		if stored, _, _ := c.tables.Saves.Get(s.Task); len(stored.Script.Stdout) > 0 {
			t.Error("the output is in the record")
		}
	})
}

func TestOutputIsBounded(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		const size, most = 1 << 10, 10
		c.bounded(bounds{output: most * size})
		noise := strings.Repeat("x", size)
		const requests = most + 3
		for i := range requests {
			id := fmt.Sprintf("%08d", i)
			s := &farm.SaveRequest{
				ID: id, Status: farm.SaveSucceeded, Updated: c.now(), Script: &farm.ScriptResult{},
				StdoutBytes: len(noise),
			}
			if err := c.keepOutput(t.Context(), id, &api.ScriptStatus{Stdout: noise}); err != nil {
				t.Fatal(err)
			}
			if err := c.store.Commit(t.Context(), store.Put(c.tables.Saves, id, s, store.IfAbsent)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.store.Commit(t.Context(), store.Put(c.tables.SaveChunks, "loose.out.0",
			&record.SaveChunk{Made: c.now()}, store.IfAbsent)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		for i, s := range c.Saves("", requests, nil) {
			if gone := len(s.Script.Stdout) == 0; gone != (i < 3) || gone != (len(s.Script.Errors) == 1) {
				t.Errorf("request %d: %d bytes of output, errors %q", i, len(s.Script.Stdout), s.Script.Errors)
			}
		}
		if _, _, ok := c.tables.SaveChunks.Get("loose.out.0"); !ok {
			t.Error("a piece whose request may still come was removed")
		}
		c.away(keepLoose)
		time.Sleep(3 * time.Second)
		if _, _, ok := c.tables.SaveChunks.Get("loose.out.0"); ok {
			t.Error("a piece without a request stayed")
		}
	})
}
