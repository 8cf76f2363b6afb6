package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fixture is a module with one package, whose tests detect some mutants.
var fixture = map[string]string{
	"go.mod": "module example.test/m\n\ngo 1.26\n",
	"m.go": `package m

import (
	"errors"
	"log/slog"
	"time"
)

const limit = 4

func check(n int, known bool) error {
	if n < 0 || n > limit {
		return errors.New("out of range")
	}
	if !known {
		slog.Warn("unknown")
	}
	return nil
}

type file struct{ synced, closed bool }

func (f *file) sync() error    { f.synced = true; return nil }
func (f *file) forget()        { f.closed = true }
func (f *file) isClosed() bool { return f.closed }

func save(f *file) error {
	if err := f.sync(); err != nil {
		return err
	}
	f.forget()
	return check(limit, false)
}

func (f *file) String() string {
	if f.closed {
		return "closed"
	}
	return "open"
}

func closed(f *file) bool {
	for !f.closed {
		time.Sleep(time.Millisecond)
		f.forget()
	}
	return true
}

func count(n int) (sum int) {
	for i := 0; i < n; i++ {
		sum++
	}
	return sum
}
`,
	"m_test.go": `package m

import "testing"

func TestCheck(t *testing.T) {
	if check(1, true) != nil || check(limit, true) != nil || check(limit+1, true) == nil {
		t.Fatal()
	}
}

func TestSave(t *testing.T) {
	var f file
	if save(&f) != nil || !f.closed {
		t.Fatal()
	}
}

func TestClosed(t *testing.T) {
	if !closed(&file{}) {
		t.Fatal()
	}
}

func TestCount(t *testing.T) {
	if count(3) != 3 {
		t.Fatal()
	}
}
`,
}

// fixtureReport is the output of a run for the fixture.
const fixtureReport = `  m.go:12 check operand dropped (not reached): n < 0
  m.go:12 check boundary moved (not reached): n < 0
  m.go:25 (*file).isClosed bool flipped (not reached): f.closed
  m.go:28 save guard removed (not reached): if err := f.sync(); err != nil
  m.go:32 save error dropped (not reached): check(limit, false)
  m.go:32 save call removed (unnoticed): check(limit, false)
0 passed, 1 failed, 0 skipped
`

// fixtureNoticed lists what the fixture's tests detect.
const fixtureNoticed = `12 check guard removed: noticed: if n < 0 || n > limit
12 check condition negated: noticed: n < 0 || n > limit
12 check operand dropped: noticed: n > limit
12 check boundary moved: noticed: n > limit
12 check constant off: noticed: n > limit
28 save condition negated: noticed: err != nil
31 save call removed: noticed: f.forget()
45 closed call removed: timed out: f.forget()
47 closed bool flipped: noticed: true
`

const fixtureExcuse = ".\tsave\tcall removed\tf.sync()\tnothing is kept\n"

func fixtureOptions(t *testing.T) options {
	t.Helper()
	t.Setenv("GOWORK", "off")
	dir := t.TempDir()
	for name, text := range fixture {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return options{all: true, jobs: 2, grace: 5 * time.Second, least: 90, dir: dir, excuses: []byte(fixtureExcuse)}
}

func TestRun(t *testing.T) {
	o := fixtureOptions(t)
	o.json = filepath.Join(o.dir, "report.json")
	var out strings.Builder
	good, err := run(t.Context(), o, []string{"."}, &out)
	if err != nil || good {
		t.Errorf("good is %t: %v", good, err)
	}
	if left, err := os.ReadDir(o.dir); err != nil || len(left) != len(fixture)+1 {
		t.Errorf("left in the tree: %v, %v", left, err)
	}
	if !strings.HasSuffix(out.String(), fixtureReport) || !strings.Contains(out.String(), "(15 mutants, 1 equivalent") {
		t.Errorf("printed:\n%s", out.String())
	}

	text, err := os.ReadFile(o.json)
	if err != nil {
		t.Fatal(err)
	}
	var reports []report
	if err := json.Unmarshal(text, &reports); err != nil || len(reports) != 1 {
		t.Fatalf("%v:\n%s", err, text)
	}
	var got strings.Builder
	for _, m := range reports[0].List {
		if m.Result == noticed || m.Result == timedOut {
			fmt.Fprintf(&got, "%d %s %s: %s: %s\n", m.Line, m.Function, m.Operator, m.Result, m.Source)
		}
	}
	if got.String() != fixtureNoticed {
		t.Errorf("noticed:\n%s", got.String())
	}
	if want := strings.Count(fixtureNoticed, "\n"); reports[0].Noticed != want || reports[0].Tried != 15 {
		t.Errorf("%d of %d are noticed, want %d of 15", reports[0].Noticed, reports[0].Tried, want)
	}
}

func TestExcuseThatFitsNothing(t *testing.T) {
	o := fixtureOptions(t)
	o.excuses = append(o.excuses, ".\tsave\tcall removed\tf.flush()\tis gone\n"...)
	var out strings.Builder
	good, err := run(t.Context(), o, []string{"."}, &out)
	if err != nil || good || !strings.Contains(out.String(), "equivalent.txt:2 fits no mutant") {
		t.Errorf("good is %t: %v\n%s", good, err, out.String())
	}
}

func TestLeastShare(t *testing.T) {
	for n, want := range map[int]string{89: "89/100 89 % less than 90 %", 90: "90/100 90 % ok"} {
		var out strings.Builder
		r := report{Noticed: n, Tried: 100}
		if r.print(&out, 90); !strings.Contains(out.String(), want) || r.good(90) != (n == 90) {
			t.Errorf("%d: %s", n, out.String())
		}
	}
}

func TestExcuses(t *testing.T) {
	_, err := readExcuses(strings.NewReader("# a comment\n\na\tb\tc\td\t \n"))
	if err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("an excuse without a reason is taken: %v", err)
	}
}

func TestSampleRepeats(t *testing.T) {
	var all []*mutant
	for id := range 100 {
		all = append(all, &mutant{ID: id + 1, Source: fmt.Sprint(id)})
	}
	o := options{n: 9, seed: 1}
	a, again, b := o.choose(all), o.choose(all), options{n: 9, seed: 2}.choose(all)
	if len(a) != 9 || !slices.Equal(a, again) || slices.Equal(a, b) {
		t.Errorf("chosen: %v, %v, %v", a, again, b)
	}
}
