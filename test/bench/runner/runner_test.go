package runner

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
	"github.com/buildyard/buildyard/test/rig"
)

// bench is a benchmark of two rows.
type bench struct {
	*Run
	value   float64
	measure func(context.Context, *bench) error
}

func (b *bench) Flags(flags *flag.FlagSet) {
	flags.Float64Var(&b.value, "value", 1, "value of both rows")
}

func (b *bench) Rows() ([]row.Row, error) {
	if b.value < 0 {
		return nil, errors.New("invalid -value")
	}
	return []row.Row{
		{Name: "first", Unit: "x", Target: 2, Digits: 1, Need: 1, How: "given"},
		{Name: "second", Unit: "x", Target: 2, Digits: 1, Need: 2, How: "given"},
	}, nil
}

func (b *bench) Head() string { return "head" }

func (b *bench) Measure(ctx context.Context) error { return b.measure(ctx, b) }

// programOf returns a program that measures so.
func programOf(measure func(context.Context, *bench) error) Program {
	return Program{
		Name: "bench-test", Example: "first,second",
		New: func(r *Run) Benchmark { return &bench{Run: r, measure: measure} },
		Children: map[string]Child{"echo": func(_ context.Context, args []string, out io.Writer) error {
			_, err := io.WriteString(out, strings.Join(args, " "))
			return err
		}},
	}
}

// fill adds all samples.
func fill(_ context.Context, b *bench) error {
	for _, name := range []string{"first", "second", "second"} {
		b.Add(name, b.value)
	}
	return nil
}

func TestRun(t *testing.T) {
	failed := func(ctx context.Context, b *bench) error {
		b.Add("first", 1)
		return errors.New("no disk")
	}
	for name, c := range map[string]struct {
		args    []string
		measure func(context.Context, *bench) error
		ok      bool
		err     string
		want    string
	}{
		"on target":       {nil, fill, true, "", "2 passed, 0 failed, 0 skipped\n"},
		"selected":        {[]string{"-only", "second"}, fill, true, "", "1 passed, 0 failed, 1 skipped\n"},
		"missed":          {[]string{"-value", "3"}, fill, true, "", "MISSED"},
		"missed, checked": {[]string{"-value", "3", "-check"}, fill, false, "", "0 passed, 2 failed, 0 skipped\n"},
		"failed":          {nil, failed, false, "no disk", "second    not measured: no disk\n1 passed, 1 failed"},
		"unknown row":     {[]string{"-only", "third"}, fill, false, `unknown row "third"`, ""},
		"argument":        {[]string{"more"}, fill, false, `unexpected argument "more"`, ""},
		"invalid flag":    {[]string{"-value", "-1"}, fill, false, "invalid -value", ""},
		"child":           {[]string{"echo", "a", "b"}, fill, true, "", "a b"},
	} {
		var out strings.Builder
		ok, err := programOf(c.measure).run(t.Context(), c.args, &out)
		if ok != c.ok || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) ||
			!strings.Contains(out.String(), c.want) {
			t.Errorf("%s: %v, %v:\n%s", name, ok, err, &out)
		}
	}
}

func TestJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	if ok, err := programOf(fill).run(t.Context(), []string{"-json", path}, io.Discard); !ok || err != nil {
		t.Fatal(ok, err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back row.Report
	if err := json.Unmarshal(raw, &back); err != nil || len(back.Rows) != 2 || back.Passed != 2 {
		t.Errorf("%v: %s", err, raw)
	}
}

// TestMeasureParts: a part that fails spoils its rows, a partial one only those without all samples, and the end of
// the run is the reason for both.
func TestMeasureParts(t *testing.T) {
	fails := func(b *bench) func(context.Context) error {
		return func(context.Context) error {
			b.Add("first", 1)
			b.Add("second", 1)
			return errors.New("gone")
		}
	}
	for _, partial := range []bool{false, true} {
		made, _, err := programOf(nil).Parse(nil, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		b := made.(*bench)
		ctx, end := context.WithCancelCause(t.Context())
		if partial {
			end(errors.New("limit"))
		}
		b.MeasureParts(ctx, Part{Rows: []string{"first", "second"}, Do: fails(b), Partial: partial},
			Part{Rows: []string{"second"}, Do: func(context.Context) error {
				t.Error("a spoiled row is measured")
				return nil
			}})
		end(nil)
		b.Evaluate()
		first, second := b.Figure("first").Unmeasured, b.Figure("second").Unmeasured
		want := [2]string{"gone", "gone"}
		if partial {
			want = [2]string{"", "the run was ended: limit"}
		}
		if [2]string{first, second} != want {
			t.Errorf("partial %v: %q, %q", partial, first, second)
		}
	}
}

// TestAwait: a wait ends with its limit, and when a process has ended.
func TestAwait(t *testing.T) {
	p := rig.NewProcess(t.TempDir(), "server", "sh", "-c", "echo out of memory; exec sleep 600")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Kill() }()
	never := func() (bool, error) { return false, nil }
	w := Wait{What: "the moon", Limit: 3 * time.Millisecond, Every: time.Millisecond, Processes: []*rig.Process{p, nil}}
	if err := w.Await(t.Context(), never); err == nil || !strings.Contains(err.Error(), "for the moon") {
		t.Error(err)
	}
	if err := w.Await(t.Context(), func() (bool, error) { return true, nil }); err != nil {
		t.Error(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	w.Limit = time.Minute
	if err := w.Await(t.Context(), never); err == nil || !strings.Contains(err.Error(), "server has ended") {
		t.Error(err)
	}
}

// TestShare measures this process while it works and while it waits.
func TestShare(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := time.Now().Add(400 * time.Millisecond); time.Now().Before(end); {
		}
	}()
	busy, err := Share(t.Context(), 300*time.Millisecond, os.Getpid())
	<-done
	if err != nil || busy <= 0 {
		t.Errorf("busy: %v, %v", busy, err)
	}
	lazy, err := Share(t.Context(), 300*time.Millisecond, os.Getpid())
	if err != nil || lazy >= busy {
		t.Errorf("lazy: %v, busy: %v, %v", lazy, busy, err)
	}
	if _, err := Share(t.Context(), time.Millisecond, 1<<30); err == nil {
		t.Error("a process that does not exist was measured")
	}
}
