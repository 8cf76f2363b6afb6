package treetest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"
)

// Run runs a program in a directory, and returns what it printed.
func Run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// Format makes a sparse file, and a file system in it by a program.
func Format(t testing.TB, image string, size int64, program ...string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
		t.Fatal(err)
	}
	Run(t, "", append(program, image)...)
}

// Open opens an image until the end of the test.
func Open(t testing.TB, image string) (f *os.File, size int64) {
	t.Helper()
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return f, st.Size()
}

// NewTree makes a directory with content that is difficult for file systems.
func NewTree(t testing.TB, entries int) string {
	t.Helper()
	tree := t.TempDir()
	if err := Make(tree, entries); err != nil {
		t.Fatal(err)
	}
	return tree
}

// Listed returns the list of what is in a directory.
func Listed(t testing.TB, dir string) List {
	t.Helper()
	list, err := ListDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Same compares a file system with a list.
func Same(t testing.TB, want List, fsys fs.FS, skip ...string) {
	t.Helper()
	got, err := ListFS(fsys, skip...)
	if err != nil {
		t.Fatal(err)
	}
	equal, diffs := Differences(want, got)
	for _, d := range diffs[:min(len(diffs), 10)] {
		t.Error(d)
	}
	t.Logf("%d/%d equal", equal, len(want))
}

// BenchmarkWalks walks a file system, reads the inode of each entry, and the content of every twentieth file: compared
// with the same tree as a directory. open returns the file system with nothing in its caches.
func BenchmarkWalks(b *testing.B, name, tree string, open func() fs.FS) {
	for name, fsys := range map[string]func() fs.FS{
		name:        open,
		"directory": func() fs.FS { return os.DirFS(tree) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				entries, read, err := Visit(fsys())
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(entries), "entries/op")
				b.ReportMetric(float64(read), "read/op")
			}
		})
	}
}
