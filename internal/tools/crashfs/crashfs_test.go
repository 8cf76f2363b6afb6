package crashfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// world is a watched tree, with steps that fail the test.
type world struct {
	*testing.T
	base string
	tree *Tree
}

func newWorld(t *testing.T) *world {
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "old"), []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	tree, err := Watch(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	return &world{t, base, tree}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) path(name string) string { return filepath.Join(w.base, name) }

func (w *world) write(name, text string) { w.must(os.WriteFile(w.path(name), []byte(text), 0o640)) }

func (w *world) sync(name string) {
	w.Helper()
	f, err := os.Open(w.path(name))
	w.must(err)
	w.must(errors.Join(w.tree.Sync(f), f.Close()))
}

// after returns the files after a crash, as name=content, and directories as name/.
func (w *world) after(keep Keep) string {
	w.Helper()
	dir := filepath.Join(w.TempDir(), "crashed")
	state, err := w.tree.Crash(keep)
	w.must(err)
	w.must(state.Write(dir))
	var all []string
	w.must(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if e.IsDir() {
			all = append(all, name+"/")
			return nil
		}
		raw, err := os.ReadFile(path)
		all = append(all, name+"="+string(raw))
		return err
	}))
	return strings.Join(all, " ")
}

func TestWhatSurvives(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*world)
		want [4]string // in the order of Keeps
	}{
		{"nothing changed", func(*world) {}, [4]string{"old=old", "old=old", "old=old", "old=old"}},
		{
			"a new file, nothing synced", func(w *world) { w.write("new", "x") },
			[4]string{"old=old", "new= old=old", "old=old", "new=x old=old"},
		},
		{
			"only the file synced", func(w *world) { w.write("new", "x"); w.sync("new") },
			[4]string{"old=old", "new=x old=old", "old=old", "new=x old=old"},
		},
		{
			"only the directory synced", func(w *world) { w.write("new", "x"); w.sync(".") },
			[4]string{"new= old=old", "new= old=old", "new=x old=old", "new=x old=old"},
		},
		{
			"changed in place", func(w *world) { w.write("old", "changed") },
			[4]string{"old=old", "old=old", "old=changed", "old=changed"},
		},
		{
			"replaced, the directory not synced", func(w *world) {
				w.write("new", "x")
				w.sync("new")
				w.must(os.Rename(w.path("new"), w.path("old")))
			},
			[4]string{"old=old", "old=x", "old=old", "old=x"},
		},
		{
			"replaced, the file not synced", func(w *world) {
				w.write("new", "x")
				w.must(os.Rename(w.path("new"), w.path("old")))
				w.sync(".")
			},
			[4]string{"old=", "old=", "old=x", "old=x"},
		},
		{
			"removed", func(w *world) { w.must(os.Remove(w.path("old"))) },
			[4]string{"old=old", "", "old=old", ""},
		},
		{
			"removed and synced", func(w *world) { w.must(os.Remove(w.path("old"))); w.sync(".") },
			[4]string{"", "", "", ""},
		},
		{
			"a directory whose parent was not synced", func(w *world) {
				w.must(os.Mkdir(w.path("dir"), 0o750))
				w.write("dir/new", "x")
				w.sync("dir/new")
				w.sync("dir")
			},
			[4]string{"old=old", "dir/ dir/new=x old=old", "old=old", "dir/ dir/new=x old=old"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.do(w)
			for i, keep := range Keeps {
				if got := w.after(keep); got != c.want[i] {
					t.Errorf("%s: %q, want %q", keep, got, c.want[i])
				}
			}
		})
	}
}

// TestInodesAreNotReused: the content of a removed file is never that of a later one.
func TestInodesAreNotReused(t *testing.T) {
	w := newWorld(t)
	for range 100 {
		w.write("new", "first")
		w.sync("new")
		w.sync(".")
		w.must(os.Remove(w.path("new")))
		w.write("new", "second")
		w.sync(".")
		if got := w.after(Keep{}); got != "new= old=old" {
			t.Fatal(got)
		}
		w.must(os.Remove(w.path("new")))
	}
}

func TestSumsDistinguishTrees(t *testing.T) {
	w := newWorld(t)
	sum := func() string {
		state, err := w.tree.Crash(Keep{})
		w.must(err)
		return state.Sum
	}
	first := sum()
	w.write("old", "changed")
	if sum() != first {
		t.Error("equal trees have two sums")
	}
	w.sync("old")
	if sum() == first {
		t.Error("a changed file leaves the sum as it was")
	}
}

func TestSyncOfWhatIsNotOpen(t *testing.T) {
	w := newWorld(t)
	f, err := os.Open(w.path("old"))
	w.must(err)
	w.must(os.Rename(w.path("old"), w.path("moved")))
	w.write("old", "another")
	if err := w.tree.Sync(f); err == nil {
		t.Error("another file of the name was taken for synced")
	}
	w.must(f.Close())
	if err := w.tree.Sync(f); !errors.Is(err, os.ErrClosed) {
		t.Errorf("sync of a closed file: %v", err)
	}
}
