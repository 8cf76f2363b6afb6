package journal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
)

// saved is a state that differs from that of an accepted entry.
var saved = journal.State{Claim: "1", Phase: api.PhaseRunning}

// operations are operations on a journal with an entry idA, and the durable steps of each.
var operations = map[string]struct {
	do    func(*journal.Dir) error
	steps string
}{
	"accept": {
		func(d *journal.Dir) error { return d.Accept(start(idB, "1")) },
		"write sync rename dir write sync rename dir dir",
	},
	"accept an end": {
		func(d *journal.Dir) error {
			return d.Accept(journal.Entry{
				Order: start(idB, "1").Order, State: journal.RemovalState(start(idB, "1").Order),
			})
		},
		"write sync rename dir write sync rename dir dir",
	},
	"save":   {func(d *journal.Dir) error { return d.Save(idA, saved) }, "write sync rename dir"},
	"remove": {func(d *journal.Dir) error { return d.Remove(idA) }, "remove dir"},
}

// TestFailedSteps fails each step of every operation, and each fsync: the caller receives the
// error, no entry is damaged, other entries stay, and the operation succeeds afterwards.
func TestFailedSteps(t *testing.T) {
	failure := errors.New("broken disk")
	for name, op := range operations {
		t.Run(name, func(t *testing.T) {
			for fail := range 100 {
				dir := t.TempDir()
				if err := open(t, dir, nil).Accept(start(idA, "1")); err != nil {
					t.Fatal(err)
				}
				armed, at, failed := false, 0, ""
				broken := func(what string) error {
					if at++; armed && at == fail+1 {
						failed = what
						return failure
					}
					return nil
				}
				var steps []string
				d, err := journal.Open(dir, journal.Options{
					BeforeStep: func(step string) error {
						steps = append(steps, step)
						return broken("step " + step)
					},
					SyncFile: func(f *os.File) error { return errors.Join(f.Sync(), broken("fsync of "+f.Name())) },
				})
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				armed, at = true, 0
				err = op.do(d)
				if failed == "" {
					if got := strings.Join(steps, " "); err != nil || got != op.steps {
						t.Errorf("steps %s, want %s (%v)", got, op.steps, err)
					}
					return
				}
				if !errors.Is(err, failure) {
					t.Errorf("%s failed: %v", failed, err)
				}
				checkWhole(t, dir, failed)
				if err := op.do(d); err != nil {
					t.Errorf("again, after %s had failed: %v", failed, err)
				}
			}
		})
	}
}

// checkWhole fails for damaged entries, and for those with a missing file.
func checkWhole(t *testing.T, dir, failed string) {
	t.Helper()
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for id, e := range load(t, open(t, left, nil)) {
		if e.State.Claim != "1" || e.Order.InstanceID != id {
			t.Errorf("after %s failed: %+v", failed, e)
		}
	}
	if damaged, _ := filepath.Glob(filepath.Join(left, ".damaged-*")); len(damaged) > 0 {
		t.Errorf("after %s failed: damaged entries %v", failed, damaged)
	}
}

// TestUnusualFiles: a file that cannot be written or removed is reported, and the existing one stays.
func TestUnusualFiles(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(dir string) error
		do      func(d *journal.Dir) error
		want    string
	}{
		"a file in place of an entry": {
			func(dir string) error { return os.WriteFile(filepath.Join(dir, idB), nil, 0o600) },
			func(d *journal.Dir) error { return d.Accept(start(idB, "1")) }, "mkdir",
		},
		"a directory in place of a state": {
			func(dir string) error {
				name := filepath.Join(dir, idA, "status.json")
				return errors.Join(os.Remove(name), os.MkdirAll(filepath.Join(name, "x"), 0o700))
			},
			func(d *journal.Dir) error { return d.Save(idA, saved) }, "rename",
		},
		"a directory in place of an order": {
			func(dir string) error {
				return errors.Join(os.Remove(idPath(dir, idA)),
					os.MkdirAll(filepath.Join(idPath(dir, idA), "x"), 0o700))
			},
			func(d *journal.Dir) error { return d.Remove(idA) }, "not empty",
		},
		"a time that has no text": {
			func(string) error { return nil },
			func(d *journal.Dir) error {
				return d.Save(idA,
					journal.State{Task: &journal.Task{RunStartedAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}})
			}, "year",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := open(t, dir, nil)
			if err := errors.Join(d.Accept(start(idA, "1")), c.prepare(dir)); err != nil {
				t.Fatal(err)
			}
			if err := c.do(d); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if _, err := os.Stat(idPath(dir, idA)); err != nil {
				t.Errorf("the entry is gone: %v", err)
			}
		})
	}
}

// TestIDsThatAreNone: nothing is written or removed under an ID that cannot be a directory's name.
func TestIDsThatAreNone(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, nil)
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "a/b", "."} {
		for what, err := range map[string]error{"save": d.Save(id, saved), "remove": d.Remove(id)} {
			if farm.CodeOf(err) != farm.CodeInvalid {
				t.Errorf("%s %q: %v", what, id, err)
			}
		}
	}
	if got := names(t, filepath.Join(dir, "a")); len(got) != 1 {
		t.Errorf("left is %v", got)
	}
}

func TestRemoveLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, nil)
	if err := errors.Join(d.Accept(start(idA, "1")), d.Remove(idA)); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 0 { // without Options.Reserve, its file does not exist either
		t.Errorf("left is %v", got)
	}
	_ = d.Close()
	if _, err := d.Load(); err == nil {
		t.Error("a closed journal is read")
	}
}

// TestReserveIsGivenUpOnce: only for a full disk, and a write is retried once with its space, never
// without it.
func TestReserveIsGivenUpOnce(t *testing.T) {
	for _, c := range []struct {
		failure error
		size    int64
		tries   int
	}{
		{syscall.ENOSPC, 4096, 2},
		{syscall.EDQUOT, 4096, 2},
		{syscall.EIO, 4096, 1},
		{syscall.ENOSPC, 0, 1},
	} {
		dir := t.TempDir()
		tries, broken := 0, false
		d, err := journal.Open(dir, journal.Options{ReserveBytes: c.size, BeforeStep: func(step string) error {
			if !broken || step != journal.StepWrite {
				return nil
			}
			tries++
			return c.failure
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := d.Accept(start(idA, "1")); err != nil {
			t.Fatal(err)
		}
		broken = true
		if err := d.Save(idA, saved); !errors.Is(err, c.failure) || tries != c.tries {
			t.Errorf("%v with a reserve of %d: %d tries, %v", c.failure, c.size, tries, err)
		}
		_, err = os.Stat(filepath.Join(dir, ".reserve"))
		if kept := err == nil; kept != (c.size > 0 && c.tries == 1) {
			t.Errorf("%v: the reserve is there: %t", c.failure, kept)
		}
	}
}

// TestReserveIsMadeWhole: a complete reserve is left alone, one of another size is written again.
func TestReserveIsMadeWhole(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, ".reserve")
	read := func() []byte {
		d, err := journal.Open(dir, journal.Options{ReserveBytes: 4096})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		raw, err := os.ReadFile(file)
		if err != nil || len(raw) != 4096 {
			t.Fatalf("a reserve of %d bytes: %v", len(raw), err)
		}
		return raw
	}
	first := read()
	if !bytes.Equal(read(), first) {
		t.Error("a whole reserve was written again")
	}
	if err := os.Truncate(file, 100); err != nil {
		t.Fatal(err)
	}
	read()
}

func TestTaskIsOver(t *testing.T) {
	for stage, over := range map[api.TaskStage]bool{
		api.TaskAccepted: false, api.TaskTesting: false, api.TaskDone: true, api.TaskFailed: true,
	} {
		task := &journal.Task{Order: api.Order{Task: "id"}, Stage: stage}
		if task.IsOver() != over || task.ID() != "id" {
			t.Errorf("%s is over: %t; id %q", stage, task.IsOver(), task.ID())
		}
	}
	if none := (*journal.Task)(nil); !none.IsOver() || none.ID() != "" {
		t.Error("nobody's task is not over, or has an id")
	}
}
