package journal_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
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
	d, err := journal.Open(dir, journal.Options{BeforeStep: step})
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

// TestBook runs both implementations through the same operations.
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
			s := journal.State{
				Number: 5, Claim: "2", Phase: api.PhaseRunning, ScriptBegun: true,
				VM: &api.NodeVM{UUID: "u"},
			}
			s.Task = &journal.Task{
				Order: api.Order{
					Kind: api.OrderSave, InstanceID: idA, Task: "s", Save: &api.SaveOrder{Script: []byte{0, 255}},
				},
				Stage: api.TaskTesting, ScriptBegun: true, Script: &api.ScriptStatus{Code: 3},
				Failure: &journal.TaskFailure{Message: "m", Code: 3},
				Saved: &hv.SaveResult{
					Disks: []hv.SavedDisk{{Path: "/d", Format: "qcow2", ChangedBytes: 1}}, State: "/s",
					Requirements: hv.StateRequirements{CPUs: 2},
				},
				Version: &api.PushResult{ContentID: "c"}, ChainIDs: map[string]string{"d": "r"},
				RunStartedAt: time.Unix(1, 5).UTC(),
			}
			must(b.Save(idA, s))
			list, err := b.Load()
			must(err)
			if len(list) != 2 || list[0].Order.InstanceID != idA || list[1].Order.InstanceID != idB {
				t.Fatalf("Load gives %+v, want two entries in order", list)
			}
			if list[0].State.Number <= s.Number || journal.IsNumberReserved(list[0].State.Number, s.Number) {
				t.Errorf("number after Load is %d: it may have been used after %d", list[0].State.Number, s.Number)
			}
			list[0].State.Number = s.Number
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
			if err := b.Save(idA, s); err == nil {
				t.Error("the state of an entry that is gone was saved")
			}
			for _, id := range []string{"", ".", "..", "../x", "a/b", ".hidden", "é", strings.Repeat("x", 129)} {
				if err := b.Accept(start(id, "1")); farm.CodeOf(err) != farm.CodeInvalid {
					t.Errorf("%q was accepted as an id: %v", id, err)
				}
			}
		})
	}
}

// TestCrash crashes before each durable step of every operation, and after it has returned, and
// opens a journal on what a power loss or a kill leaves there.
func TestCrash(t *testing.T) {
	began := start(idA, "1").State
	saved := journal.State{Claim: "1", Phase: api.PhaseRunning}
	for name, op := range map[string]struct {
		do            func(*journal.Dir) error
		id            string
		before, after *journal.State // nil: no entry
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
			d, err := journal.Open(dir, journal.Options{SyncFile: tree.Sync, BeforeStep: func(step string) error {
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

// afterCrash returns the entries that a journal has after a crash at this moment. None of them is
// damaged.
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

// isEntry reports whether the entry of an instance is complete and has a state; nil: whether it is
// missing.
func isEntry(got map[string]journal.Entry, id string, want *journal.State) bool {
	e, found := got[id]
	if want == nil || !found {
		return found == (want != nil)
	}
	return e.Order.Claim == "1" && e.Order.Start != nil && e.State.Claim == want.Claim && e.State.Phase == want.Phase
}

// TestNewJournalIsThereAfterACrash: the directory of the journal is as durable as its entries.
func TestNewJournalIsThereAfterACrash(t *testing.T) {
	base := t.TempDir()
	tree, err := crashfs.Watch(base)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	d, err := journal.Open(filepath.Join(base, "instances"), journal.Options{SyncFile: tree.Sync})
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

// TestDamagedEntryIsSetAside: whatever is wrong with an entry, Look changes nothing, and Load
// quarantines it under another name. It removes what an interrupted Accept or Remove left; other
// files stay.
func TestDamagedEntryIsSetAside(t *testing.T) {
	write := func(name string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(`{"kind":`), 0o600) }
	}
	aside := ".damaged-" + idA
	for name, c := range map[string]struct {
		damage func(dir string) error
		left   string // name of the entry's directory after Load; "": removed
	}{
		"order is cut": {write(idA + "/order.json"), aside},
		"state is cut": {write(idA + "/status.json"), aside},
		"no state":     {func(dir string) error { return os.Remove(filepath.Join(dir, idA, "status.json")) }, aside},
		"no order":     {func(dir string) error { return os.Remove(filepath.Join(dir, idA, "order.json")) }, ""},
		"other instance": {func(dir string) error {
			return errors.Join(os.Remove(idPath(dir, idA)), os.Link(idPath(dir, idB), idPath(dir, idA)))
		}, aside},
		"no file": {func(dir string) error {
			return errors.Join(os.Remove(idPath(dir, idA)), os.Mkdir(idPath(dir, idA), 0o700))
		}, aside},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := open(t, dir, nil)
			for _, id := range []string{idA, idB} {
				if err := d.Accept(start(id, "1")); err != nil {
					t.Fatal(err)
				}
			}
			err := errors.Join(c.damage(dir), os.Mkdir(filepath.Join(dir, "lost+found"), 0o700), write("notes")(dir))
			if err != nil {
				t.Fatal(err)
			}
			before := names(t, dir)
			if looked, err := journal.ReadEntries(dir); err != nil || len(looked) != 1 ||
				!slices.Equal(names(t, dir), before) {
				t.Fatalf("Reader gives %d entries, %v, want the whole one; %v is left", len(looked), err, names(t, dir))
			}
			if got := load(t, d); len(got) != 1 || got[idB].Order.InstanceID != idB {
				t.Fatalf("Load gives %v, want the whole entry only", got)
			}
			want := []string{idB, "lost+found", "notes"}
			if c.left != "" {
				want = append([]string{c.left}, want...)
			}
			if got := names(t, dir); !slices.Equal(got, want) {
				t.Errorf("left are %v, want %v", got, want)
			}
		})
	}
}

// TestDamageIsNeverDropped: Load fails where an entry cannot be quarantined because another one has
// its name.
func TestDamageIsNeverDropped(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, nil)
	for range 2 {
		if err := d.Accept(start(idA, "1")); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, idA, "status.json")); err != nil {
			t.Fatal(err)
		}
		_, err := d.Load()
		if first := len(names(t, dir)) == 1; first != (err == nil) {
			t.Errorf("%v is there after Load: %v", names(t, dir), err)
		}
	}
}

func idPath(dir, id string) string { return filepath.Join(dir, id, "order.json") }

// names lists a directory, sorted.
func names(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, item := range list {
		out = append(out, item.Name())
	}
	return out
}

func TestReaderWithoutDirectory(t *testing.T) {
	dir := t.TempDir()
	if got, err := journal.ReadEntries(filepath.Join(dir, "none")); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v, want nothing", got, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.ReadEntries(file); err == nil {
		t.Error("a file is read as a journal")
	}
	if _, err := journal.Open(filepath.Join(file, "journal"), journal.Options{}); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a journal below a file: %v", err)
	}
}

// TestReserve: on a full disk the reserve is freed for one more write and is created again later;
// starts are refused as long as it is missing, ends are not.
func TestReserve(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, ".reserve")
	there := func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() == journal.DefaultReserveBytes
	}
	crowded := false
	d, err := journal.Open(
		dir, journal.Options{ReserveBytes: journal.DefaultReserveBytes, BeforeStep: func(step string) error {
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
	crowded = false
	end := start(idB, "1")
	end.State = journal.RemovalState(end.Order)
	state := func(task journal.Task) journal.State {
		return journal.State{Claim: "1", Phase: api.PhaseRunning, Task: &task}
	}
	for name, c := range map[string]struct {
		do func() error
		ok bool
	}{
		"a start":       {func() error { return d.Accept(start(idB, "1")) }, false},
		"a task":        {func() error { return d.Save(idA, state(journal.Task{Stage: api.TaskAccepted})) }, false},
		"an end":        {func() error { return d.Accept(end) }, true},
		"a task's step": {func() error { return d.Save(idA, state(journal.Task{Stage: api.TaskTesting})) }, true},
		"a state":       {func() error { return d.Save(idA, journal.State{Claim: "1"}) }, true},
		"a task's failure": {func() error {
			return d.Save(idA,
				state(journal.Task{Stage: api.TaskAccepted, Failure: &journal.TaskFailure{Message: "no"}}))
		}, true},
		"an end with a task": {func() error {
			s := state(journal.Task{Stage: api.TaskAccepted})
			s.Ending = true
			return d.Save(idA, s)
		}, true},
	} {
		// A directory in its place simulates a disk that is too full for the reserve; an attempt to
		// create it removes that.
		if err := os.Mkdir(file, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
		if err := c.do(); (err == nil) != c.ok {
			t.Errorf("%s without a reserve: %v", name, err)
		}
	}
	_ = os.Remove(file)
	if err := d.Remove(idA); err != nil || !there() {
		t.Errorf("after a removal: %v, reserve %v", err, there())
	}
}

// TestNodeIsKept: an entry contains the identity under which it was accepted; that of an older
// program contains none.
func TestNodeIsKept(t *testing.T) {
	dir := t.TempDir()
	e := start(idA, "1")
	e.NodeID = "node"
	if err := open(t, dir, nil).Accept(e); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir, nil).Accept(start(idB, "1")); err != nil {
		t.Fatal(err)
	}
	if got := load(t, open(t, dir, nil)); got[idA].NodeID != "node" || got[idB].NodeID != "" {
		t.Errorf("got nodes %q and %q", got[idA].NodeID, got[idB].NodeID)
	}
}
