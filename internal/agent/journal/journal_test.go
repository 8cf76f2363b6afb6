package journal_test

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/tools/crashfs"
)

const (
	idA = "01890000-0000-7000-8000-00000000000a"
	idB = "01890000-0000-7000-8000-00000000000b"
)

type book interface {
	Load() ([]journal.Entry, error)
	Accept(journal.Entry) error
	Save(string, journal.State) error
	Remove(string) error
}

var (
	_ book = (*journal.Dir)(nil)
	_ book = (*journal.Memory)(nil)
)

func start(id, claim string) journal.Entry {
	return journal.Entry{
		Order: api.Order{
			Kind: api.OrderStart, InstanceID: id, Claim: claim,
			Start: &api.StartOrder{TemplateID: "t", ContentID: "c", Script: &api.Script{Text: []byte("exit 0")}},
		},
		State: journal.State{Claim: claim, Phase: api.PhaseAccepted},
	}
}

func open(t *testing.T, dir string, step func(string) error) *journal.Dir {
	t.Helper()
	d, err := journal.Open(dir, journal.Options{Step: step})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func load(t *testing.T, b book) map[string]journal.Entry {
	t.Helper()
	list, err := b.Load()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]journal.Entry{}
	for _, e := range list {
		out[e.Order.InstanceID] = e
	}
	return out
}

// TestBook runs both implementations through the same life.
func TestBook(t *testing.T) {
	for name, b := range map[string]book{"dir": open(t, t.TempDir(), nil), "memory": &journal.Memory{}} {
		t.Run(name, func(t *testing.T) {
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(b.Accept(start(idB, "1")))
			must(b.Accept(start(idA, "2")))
			s := journal.State{No: 5, Claim: "2", Phase: api.PhaseRunning, ScriptBegun: true, VM: &api.LinkVM{UUID: "u"}}
			s.Task = &journal.Task{
				Order: api.Order{Kind: api.OrderSave, InstanceID: idA, Task: "s", Save: &api.SaveOrder{Script: []byte{0, 255}}},
				Stage: api.TaskTesting, ScriptBegun: true, Script: &api.ScriptStatus{Code: 3}, Failure: &journal.TaskFailure{Message: "m", Code: 3},
				Saved:   &hv.Saved{Disks: []hv.SavedDisk{{Path: "/d", Format: "qcow2", Bytes: 1}}, State: "/s", Pin: hv.Compat{CPUs: 2}},
				Version: &api.PushResult{ContentID: "c"}, Roots: map[string]string{"d": "r"}, Run: time.Unix(1, 5).UTC(),
			}
			must(b.Save(idA, s))
			list, err := b.Load()
			must(err)
			if len(list) != 2 || list[0].Order.InstanceID != idA || list[1].Order.InstanceID != idB {
				t.Fatalf("Load gives %+v, want two entries in order", list)
			}
			if list[0].State.No <= s.No || journal.Reserved(list[0].State.No, s.No) {
				t.Errorf("number after Load is %d: it may have been used after %d", list[0].State.No, s.No)
			}
			list[0].State.No = s.No
			if diff := cmp.Diff(s, list[0].State); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(start(idB, "1").Order, list[1].Order); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			must(b.Remove(idA))
			must(b.Remove(idA))
			if got := load(t, b); len(got) != 1 {
				t.Errorf("%d entries after Remove, want 1", len(got))
			}
			if err := b.Accept(start("../x", "1")); err == nil {
				t.Error("an id that is a path was accepted")
			}
		})
	}
}

// TestCrash crashes before each durable step of every operation, and after it has returned, and opens a journal on what
// a loss of power or a kill leaves there.
func TestCrash(t *testing.T) {
	began := start(idA, "1").State
	saved := journal.State{Claim: "1", Phase: api.PhaseRunning}
	for name, op := range map[string]struct {
		do            func(*journal.Dir) error
		id            string
		before, after *journal.State // nil: there is no entry
	}{
		"accept": {func(d *journal.Dir) error { return d.Accept(start(idB, "1")) }, idB, nil, &began},
		"save":   {func(d *journal.Dir) error { return d.Save(idA, saved) }, idA, &began, &saved},
		"remove": {func(d *journal.Dir) error { return d.Remove(idA) }, idA, &began, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := open(t, dir, nil).Accept(start(idA, "1")); err != nil {
				t.Fatal(err)
			}
			tree, err := crashfs.Watch(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tree.Close() })
			steps := 0
			look := func(where string, want ...*journal.State) {
				for _, keep := range crashfs.Keeps {
					where := where + ", " + keep.String()
					got := afterCrash(t, tree, keep)
					if _, ok := got[idA]; !ok && op.id != idA {
						t.Errorf("%s: another entry is lost", where)
					}
					if !slices.ContainsFunc(want, func(s *journal.State) bool { return isEntry(got, op.id, s) }) {
						t.Errorf("%s: %+v", where, got[op.id])
					}
				}
			}
			d, err := journal.Open(dir, journal.Options{Sync: tree.Sync, Step: func(step string) error {
				steps++
				look("before "+step, op.before, op.after)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := op.do(d); err != nil {
				t.Fatal(err)
			}
			look("after it has returned", op.after)
			if steps < 2 {
				t.Errorf("%d steps: the hook is not called", steps)
			}
		})
	}
}

// afterCrash gives the entries that a journal finds after a crash now. None of them is damaged.
func afterCrash(t *testing.T, tree *crashfs.Tree, keep crashfs.Keep) map[string]journal.Entry {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "crashed")
	state, err := tree.Crash(keep)
	if err == nil {
		err = state.Write(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	entries := load(t, open(t, dir, nil))
	if damaged, _ := filepath.Glob(filepath.Join(dir, ".damaged-*")); len(damaged) > 0 {
		t.Errorf("%s: damaged entries: %v", keep, damaged)
	}
	return entries
}

// isEntry says whether the entry of an instance is whole and has a state; nil: whether there is none.
func isEntry(got map[string]journal.Entry, id string, want *journal.State) bool {
	e, found := got[id]
	if want == nil || !found {
		return found == (want != nil)
	}
	return e.Order.Claim == "1" && e.Order.Start != nil && e.State.Claim == want.Claim && e.State.Phase == want.Phase
}

// TestNewJournalIsThereAfterACrash: the directory of the journal is durable as well as its entries.
func TestNewJournalIsThereAfterACrash(t *testing.T) {
	base := t.TempDir()
	tree, err := crashfs.Watch(base)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	d, err := journal.Open(filepath.Join(base, "instances"), journal.Options{Sync: tree.Sync})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Accept(start(idA, "1")); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(t.TempDir(), "crashed")
	state, err := tree.Crash(crashfs.Keep{})
	if err == nil {
		err = state.Write(left)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := load(t, open(t, filepath.Join(left, "instances"), nil)); len(got) != 1 {
		t.Errorf("%d entries after a crash, want 1", len(got))
	}
}

func TestDamagedEntryIsSetAside(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, nil)
	for _, id := range []string{idA, idB} {
		if err := d.Accept(start(id, "1")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, idA, "order.json"), []byte(`{"kind":`), 0o600); err != nil {
		t.Fatal(err)
	}
	looked, err := journal.Reader(dir)
	if err != nil || len(looked) != 1 {
		t.Fatalf("Reader gives %d entries, %v, want the whole one", len(looked), err)
	}
	if got := load(t, d); len(got) != 1 || got[idB].Order.InstanceID != idB {
		t.Fatalf("Load gives %v, want the whole entry only", got)
	}
	if _, err := os.Stat(filepath.Join(dir, ".damaged-"+idA, "order.json")); err != nil {
		t.Errorf("the damaged entry is gone: %v", err)
	}
}

func TestReaderWithoutDirectory(t *testing.T) {
	if got, err := journal.Reader(filepath.Join(t.TempDir(), "none")); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v, want nothing", got, err)
	}
}

// TestReserve: on a full disk the reserve makes room for one more write and is made
// again later; starts are refused as long as there is none, ends are not.
func TestReserve(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, ".reserve")
	there := func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() == journal.Reserve
	}
	crowded := false
	d, err := journal.Open(dir, journal.Options{Reserve: journal.Reserve, Step: func(step string) error {
		if crowded && step == journal.StepWrite && there() {
			return syscall.ENOSPC
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !there() {
		t.Fatal("there is no reserve")
	}
	if err := d.Accept(start(idA, "1")); err != nil || !there() {
		t.Fatalf("with room: %v, reserve %v", err, there())
	}
	crowded = true
	if err := d.Save(idA, journal.State{Claim: "1", Ending: true}); err != nil || there() {
		t.Errorf("without room: %v, reserve %v", err, there())
	}
	if got := load(t, d); !got[idA].State.Ending || len(got) != 1 {
		t.Errorf("Load gives %+v", got)
	}
	if err := os.Mkdir(file, 0o700); err != nil { // stands for a disk without room for it
		t.Fatal(err)
	}
	crowded = false
	if err := d.Accept(start(idB, "1")); err == nil {
		t.Error("a start was accepted without a reserve")
	}
	if err := os.Mkdir(file, 0o700); err != nil { // the attempt has removed it
		t.Fatal(err)
	}
	task := journal.State{Claim: "1", Phase: api.PhaseRunning, Task: &journal.Task{Stage: api.TaskAccepted}}
	if err := d.Save(idA, task); err == nil {
		t.Error("a task was accepted without a reserve")
	}
	failing := task
	failing.Task = &journal.Task{Stage: api.TaskAccepted, Failure: &journal.TaskFailure{Message: "no"}}
	if err := d.Save(idA, failing); err != nil {
		t.Errorf("that a task fails was refused: %v", err)
	}
	task.Ending = true
	if err := d.Save(idA, task); err != nil {
		t.Errorf("the end of an instance with a task was refused: %v", err)
	}
	end := start(idB, "1")
	end.State = journal.Tombstone(end.Order)
	if err := d.Accept(end); err != nil {
		t.Errorf("an end was refused: %v", err)
	}
	if err := d.Remove(idA); err != nil || !there() {
		t.Errorf("after a removal: %v, reserve %v", err, there())
	}
}

// TestNodeIsKept: an entry says under which identity it was accepted; one of an
// older program says nothing.
func TestNodeIsKept(t *testing.T) {
	dir := t.TempDir()
	e := start(idA, "1")
	e.Node = "node"
	if err := open(t, dir, nil).Accept(e); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir, nil).Accept(start(idB, "1")); err != nil {
		t.Fatal(err)
	}
	if got := load(t, open(t, dir, nil)); got[idA].Node != "node" || got[idB].Node != "" {
		t.Errorf("got nodes %q and %q", got[idA].Node, got[idB].Node)
	}
}
