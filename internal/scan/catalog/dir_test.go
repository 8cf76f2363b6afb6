package catalog_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

// dirTask makes a directory with links of every kind, next to a file outside of it.
func dirTask(t *testing.T) (fs.FS, string) {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for name, text := range map[string]string{
		"root/a/list": "gem a 1", "root/b/c/list": "gem b 1", "secret": "gem secret 1",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"inside": "a/list", "absolute": "/a/list", "out": "../secret", "far": filepath.Join(dir, "secret"),
		"loop": "loop", "folder": "b", "b/up": "../../../../a/list",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	tree, closer, err := catalog.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closer.Close() })
	return tree, root
}

func TestDirectoryIsAFileSystem(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"a/b/c.txt", "a/d", "e"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, n)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, n), []byte(n), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, closer, err := catalog.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	list, err := fs.ReadDir(tree, "a")
	if err != nil || len(list) != 2 {
		t.Fatalf("listed %v, %v", list, err)
	}
	if err := fstest.TestFS(sortedUnique{tree}, "a/b/c.txt", "a/d", "e"); err != nil {
		t.Error(err)
	}
}

// sortedUnique lists directories in order, which a walk does not need.
type sortedUnique struct{ fs.FS }

func (s sortedUnique) Open(name string) (fs.File, error) { return s.FS.Open(name) }

func TestLinksNeverLeaveTheTree(t *testing.T) {
	tree, _ := dirTask(t)
	for name, want := range map[string]string{
		"inside": "gem a 1", "folder/c/list": "gem b 1", "out": "", "far": "",
		"loop": "", "../secret": "", "/etc/passwd": "",
	} {
		data, err := fs.ReadFile(tree, name)
		if (err == nil) != (want != "") || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if runtime.GOOS == "linux" {
		for _, name := range []string{"absolute", "b/up"} {
			if data, err := fs.ReadFile(tree, name); err != nil || string(data) != "gem a 1" {
				t.Errorf("%s: %q, %v", name, data, err)
			}
		}
	}
	if target, err := fs.ReadLink(tree, "out"); err != nil || target != "../secret" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	if info, err := fs.Lstat(tree, "out"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	if _, err := fs.Stat(tree, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestScanOfDirectory(t *testing.T) {
	tree, root := dirTask(t)
	if err := os.WriteFile(filepath.Join(root, "a", "other"), []byte("gem hidden 1"), 0); err != nil {
		t.Fatal(err)
	}
	r, err := catalog.Scan(t.Context(), tree, catalog.Options{Extractors: list("list", "other")})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(catalogtest.Lines(r), "\n")
	want := "gem a 1 /a/list\ngem b 1 /b/c/list"
	if os.Getuid() != 0 {
		want = "! /a/other: lines: permission denied\n" + want
	} else {
		want += "\ngem hidden 1 /a/other"
	}
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestContentReadsAtAnyPlace(t *testing.T) {
	tree, _ := dirTask(t)
	f, err := tree.Open("a/list")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, ok := f.(catalog.Content)
	if !ok {
		t.Fatalf("%T reads only from its beginning", f)
	}
	part := make([]byte, 3)
	if _, err := c.ReadAt(part, 2); err != nil && !errors.Is(err, io.EOF) || string(part) != "m a" {
		t.Errorf("read %q, %v", part, err)
	}
}

func TestDirectoryRefusesFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{name, name + "x"} {
		if _, _, err := catalog.OpenDir(n); err == nil {
			t.Errorf("%s was opened", n)
		}
	}
}

func TestKernelsFilesAreSkipped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc")
	}
	tree, closer, err := catalog.OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	var skip *catalog.SkipDirError
	if _, err := fs.ReadDir(tree, "proc"); !errors.As(err, &skip) ||
		skip.Reason != "a file system of type proc is not scanned" {
		t.Errorf("got %v", err)
	}
}

func TestWithinPackage(t *testing.T) {
	for path, want := range map[string]bool{
		"a/node_modules/b/yarn.lock": true, "node_modules/b/yarn.lock": true, "a/my_node_modules/yarn.lock": false,
		"usr/lib/python3/site-packages/x/requirements.txt": true,
		"root/go/pkg/mod/x.test/y@v1.0.0/go.sum":           true, "root/go/pkg/mod/cache/download/x/go.mod": true,
		"src/x@v1/": false, "src/user@vm/go.mod": false,
		"x.test/y@v1.0.0/go.sum": true, "cache/download/x.test/y/@v/go.mod": false, "x.test/y/@v/go.mod": false,
		"root/go/pkg/mod/x.test/y@v2.0.0+incompatible/a/go.mod": true,
		"srv/app@v2/package-lock.json":                          false, "home/u/site@v1.2/Gemfile.lock": false,
		"srv/app@v1.2.3/package-lock.json": false, "www.x.test/app@v2/yarn.lock": false,
		"var/lib/gems/3.1.0/gems/rack-3.0/Gemfile.lock": true, "src/gems/rack/Gemfile.lock": false,
		"x/bundler/gems/rack-3a/Gemfile.lock":    false,
		"c/registry/src/idx/time-1.0/Cargo.lock": true, "c/registry/src/Cargo.lock": false,
		"srv/registry/src/web/app/package-lock.json": false, "srv/registry/src/web/app-2/package-lock.json": false,
		"srv/gems/site-2024/Gemfile.lock":                                   false,
		"var/lib/gems/3.1.0/gems/nokogiri-1.13.3-x86_64-linux/Gemfile.lock": true,
		"c/registry/src/idx/md-5-0.10.6/a/Cargo.lock":                       true,
		"opt/homebrew/Cellar/yarn/1.22.1/libexec/package-lock.json":         true,
		"Cellar/yarn/package-lock.json":                                     false,
		"usr/share/nodejs/mocha/package-lock.json":                          true,
		"srv/chroot/usr/share/nodejs/mocha/package-lock.json":               true,
		"srv/myusr/share/nodejs/mocha/package-lock.json":                    false,
	} {
		if got := catalog.WithinPackage(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
