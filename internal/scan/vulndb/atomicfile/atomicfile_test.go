package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func names(t testing.TB, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	check(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func TestCommitAndDiscard(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"one", "two"} {
		f, err := Create(path)
		check(t, err)
		_, err = f.WriteString(text)
		check(t, err)
		check(t, f.Commit())
		f.Discard()
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("got %q, %v", got, err)
		}
	}
	check(t, os.Chmod(path, 0o600))
	f, err := Create(path)
	check(t, err)
	check(t, f.Commit())
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
		t.Errorf("a private file became %v, %v", st.Mode(), err)
	}
	f, err = Create(path)
	check(t, err)
	f.Discard()
	s, err := CreateUnnamed(dir)
	check(t, err)
	if got := names(t, dir); got != "file" {
		t.Errorf("there are %q", got)
	}
	check(t, s.Close())
	if f, err = Create(filepath.Join(dir, "folder", "file")); !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasSuffix(err.Error(), "folder/file: no such file or directory") {
		t.Errorf("got %v, %v", f, err)
	}
	f, err = Create(filepath.Join(dir, "taken"))
	check(t, err)
	check(t, os.Mkdir(filepath.Join(dir, "taken"), 0o755))
	if f.Commit() == nil || names(t, dir) != "file taken" {
		t.Errorf("a folder was replaced: there are %q", names(t, dir))
	}
	if _, err = Create(filepath.Join(dir, "taken")); err == nil ||
		!strings.HasSuffix(err.Error(), "taken: is a directory") {
		t.Errorf("got %v", err)
	}
}

// TestLeft: the files of an ended process are removed; no others are.
func TestLeft(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	kept := []string{".buildyard-notes.tmp", ".buildyard-0123456789abcdef.tmp.txt", "x.buildyard-0123456789abcdef.tmp"}
	for _, name := range append(kept, ".buildyard-0123456789abcdef.tmp") {
		check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	check(t, os.Mkdir(filepath.Join(dir, ".buildyard-1123456789abcdef.tmp"), 0o755))
	check(t, os.Symlink(kept[0], filepath.Join(dir, ".buildyard-2123456789abcdef.tmp")))
	first, err := Create(path)
	check(t, err)
	second, err := Create(path)
	check(t, err)
	for _, name := range append(kept, filepath.Base(first.Name()), filepath.Base(second.Name()),
		".buildyard-1123456789abcdef.tmp", ".buildyard-2123456789abcdef.tmp") {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, ".buildyard-0123456789abcdef.tmp")); err == nil {
		t.Error("what was left is still there")
	}
	check(t, first.Commit())
	check(t, second.Commit())
}

// TestTogether makes many goroutines write one file; each looks for abandoned files.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 50 {
				f, err := Create(path)
				if err == nil {
					w := bufio.NewWriter(f)
					for range 1000 {
						fmt.Fprintf(w, "%d %d\n", i, n)
					}
					err = errors.Join(w.Flush(), f.Commit())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(path)
	check(t, err)
	line, _, _ := strings.Cut(string(got), "\n")
	if string(got) != strings.Repeat(line+"\n", 1000) || names(t, dir) != "file" {
		t.Errorf("the file is mixed, or there is more: %s", names(t, dir))
	}
}

// TestFullDisk: an error about the file names its target path.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.File.Close(); err != nil { // a full disk cannot be simulated everywhere
		t.Fatal(err)
	}
	_, write := f.Write([]byte("x"))
	_, text := f.WriteString("x")
	_, from := f.ReadFrom(strings.NewReader("x"))
	for what, err := range map[string]error{
		"Write": write, "WriteString": text, "ReadFrom": from, "Commit": f.Commit(),
	} {
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), ".tmp") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
