package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
)

// all returns a run of every row, or of those that arguments select.
func all(t *testing.T, args ...string) *bench {
	t.Helper()
	b, _, err := program.Parse(args, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return b.(*bench)
}

// whole is a run in which every row is just on its target.
func whole(t *testing.T, args ...string) *bench {
	t.Helper()
	r := all(t, args...)
	for _, x := range rows {
		for range minPairs {
			if r.Wants(x.Name) {
				r.Add(x.Name, x.Target)
			}
		}
	}
	return r
}

func TestCheck(t *testing.T) {
	const count = " passed, "
	cases := map[string]struct {
		args  []string
		spoil func(r *bench)
		ok    bool // without a check of the targets
		pass  bool // with it
		last  string
	}{
		"on target": {nil, func(*bench) {}, true, true, "4 passed, 0 failed, 0 skipped"},
		"missed": {nil, func(r *bench) {
			r.Figure(rowPause).Samples = []float64{1, 2, 400.01, 401, 402}
		}, true, false, "3 passed, 1 failed, 0 skipped"},
		"half is good": {nil, func(r *bench) {
			r.Figure(rowPause).Samples = []float64{1, 2, 400, 9000, 9000}
		}, true, true, "4 passed, 0 failed, 0 skipped"},
		"few samples": {nil, func(r *bench) {
			r.Figure(rowResume).Samples = []float64{0.1, 0.1, 0.1, 0.1}
		}, false, false, "3 passed, 1 failed, 0 skipped"},
		"one is enough": {nil, func(r *bench) {
			r.Figure(rowIdle).Samples = []float64{5}
		}, true, true, "4 passed, 0 failed, 0 skipped"},
		"no idle sample": {nil, func(r *bench) {
			r.Figure(rowIdle).Samples = nil
		}, false, false, "3 passed, 1 failed, 0 skipped"},
		"spoilt": {nil, func(r *bench) {
			r.Spoil(errors.New("no QEMU"), rowIdle, rowPause)
		}, false, false, "2 passed, 2 failed, 0 skipped"},
		"not asked for": {[]string{"-only", "idle"}, func(*bench) {}, true, true, "1 passed, 0 failed, 3 skipped"},
		"only, spoilt": {[]string{"-only", "idle"}, func(r *bench) {
			r.Spoil(errors.New("x"), rowIdle)
		}, false, false, "0 passed, 1 failed, 3 skipped"},
	}
	for name, c := range cases {
		r := whole(t, c.args...)
		c.spoil(r)
		r.Evaluate()
		var out strings.Builder
		r.Print(&out, r.Head())
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if last := lines[len(lines)-1]; r.OK(false) != c.ok || r.OK(true) != c.pass || last != c.last {
			t.Errorf("%s: ok %v, with check %v, last line %q", name, r.OK(false), r.OK(true), last)
		}
		if n := strings.Count(out.String(), count); n != 1 {
			t.Errorf("%s: %d lines with counts", name, n)
		}
	}
}

// TestWants: a row that failed or was not requested is no longer measured, and its first reason
// stays.
func TestWants(t *testing.T) {
	r := all(t, "-only", "idle,pause")
	if r.Wants(rowOverhead, rowResume) || !r.Wants(rowIdle) || !r.Wants(rowOverhead, rowPause) {
		t.Error("wrong rows are wanted")
	}
	r.Spoil(errors.New("first"), rowIdle)
	r.Spoil(errors.New("second"), rowIdle, rowPause)
	if r.Wants(rowIdle, rowPause) || r.Figure(rowIdle).Unmeasured != "first" ||
		r.Figure(rowPause).Unmeasured != "second" {
		t.Errorf("spoilt rows are %+v, %+v", r.Figure(rowIdle), r.Figure(rowPause))
	}
}

// TestNothingMeasured: a run in which nothing worked still reports that for every row.
func TestNothingMeasured(t *testing.T) {
	r := all(t)
	r.Spoil(errors.New("no QEMU here"), rowOverhead, rowResume, rowPause, rowIdle)
	r.Evaluate()
	var out strings.Builder
	r.Print(&out, r.Head())
	if r.OK(false) || strings.Count(out.String(), "not measured: no QEMU here") != len(rows) ||
		!strings.Contains(out.String(), "no hypervisor was seen") ||
		!strings.HasSuffix(out.String(), "\n0 passed, 4 failed, 0 skipped\n") {
		t.Errorf("ok %v:\n%s", r.OK(false), &out)
	}
}

// TestLines: every row is printed with value, target and verdict.
func TestLines(t *testing.T) {
	r := whole(t)
	r.hypervisor = hypervisor{"qemu", "7.2.22", "tcg"}
	r.Figure(rowResume).Samples = []float64{0.3, 0.1, 0.26, 0.2, 0.4}
	r.Spoil(errors.New("the node ended"), rowIdle)
	r.Evaluate()
	var out strings.Builder
	r.Print(&out, r.Head())
	for _, want := range []string{
		"qemu 7.2.22, accelerator tcg;",
		"overhead       150 ms  target <= 150 ms  ok ",
		"resume        0.26 x   target <= 0.25 x   MISSED ",
		"(0.30 0.10 0.26 0.20 0.40)",
		"idle      not measured: the node ended",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, &out)
		}
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	r := whole(t)
	r.addStart(2, coldTag,
		start{whole: 5 * time.Second, before: time.Second, boot: 3 * time.Second, after: time.Second})
	r.Evaluate()
	if err := row.Write(path, r.JSON()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(raw, &back); err != nil || len(back.Rows) != len(rows) || back.Passed != 4 {
		t.Errorf("read back %+v, %v", back, err)
	}
	if want := (interval{2, coldTag, 5000, 1000, 3000, 1000}); len(back.Starts) != 1 || back.Starts[0] != want {
		t.Errorf("the starts are %v", back.Starts)
	}
	if f := back.Rows[0]; f.Name != rowOverhead || f.Value != 150 || f.Target != 150 || !f.OK ||
		len(f.Samples) != minPairs {
		t.Errorf("the first row is %+v", f)
	}
}

func TestParse(t *testing.T) {
	if b := all(t, "-pairs", "7"); b.pairs != 7 {
		t.Errorf("%d pairs", b.pairs)
	}
	for _, args := range [][]string{{"-pairs", "0"}, {"-pairs", "101"}, {"-pairs", "x"}} {
		if _, _, err := program.Parse(args, t.Output()); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
