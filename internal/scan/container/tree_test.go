package container_test

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/container"
	"github.com/buildyard/buildyard/internal/scan/container/containertest"
)

type file = containertest.File

// all reads every file of a scan.
var all = container.Options{
	Wants: func(string, fs.FileInfo) (bool, bool) { return true, false },
}

func layer(t testing.TB, files ...file) []byte {
	t.Helper()
	b, err := containertest.Layer(files...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// write writes an archive and returns its name.
func write(t testing.TB, files containertest.Files) string {
	t.Helper()
	b, err := files.Tar()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func layout(t testing.TB, c containertest.Compression, layers ...[]byte) containertest.Files {
	t.Helper()
	f, err := containertest.Layout(c, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// openTree opens the only image of a file.
func openTree(t testing.TB, name string, o container.Options) *container.Tree {
	t.Helper()
	i, err := container.Open(name, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	tree, err := i.Tree(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Close)
	return tree
}

// list describes each file of a tree on a line, in the order of paths.
func list(t testing.TB, tree fs.FS) []string {
	t.Helper()
	var out []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := fs.ReadDir(tree, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			line := name
			switch mode := e.Type(); {
			case mode.IsDir():
				out = append(out, name+"/")
				walk(name)
				continue
			case mode&fs.ModeSymlink != 0:
				target, err := fs.ReadLink(tree, name)
				if err != nil {
					t.Fatal(err)
				}
				line += " -> " + target
			case mode.IsRegular():
				b, err := fs.ReadFile(tree, name)
				if err != nil {
					b = []byte("! " + err.Error())
				}
				line += ": " + string(b)
			default:
				line += " " + mode.String()
			}
			out = append(out, line)
		}
	}
	walk(".")
	slices.Sort(out)
	return out
}

// TestMerge applies layers as engines do.
func TestMerge(t *testing.T) {
	for name, tc := range map[string]struct {
		layers [][]file
		want   string // lines
	}{
		"one":      {[][]file{{{Name: "a/"}, {Name: "a/b", Data: "1"}}}, "a/|a/b: 1"},
		"replaced": {[][]file{{{Name: "a", Data: "1"}}, {{Name: "./a", Data: "2"}}}, "a: 2"},
		"same name twice": {
			[][]file{{{Name: "a", Data: "1"}, {Name: "a", Data: "2"}}}, "a: 2",
		},
		"whiteout": {
			[][]file{{{Name: "d/a", Data: "1"}, {Name: "d/b", Data: "1"}}, {{Name: "d/.wh.a"}}}, "d/|d/b: 1",
		},
		"whiteout of a directory": {
			[][]file{{{Name: "d/a", Data: "1"}, {Name: "e", Data: "1"}}, {{Name: ".wh.d"}}}, "e: 1",
		},
		"whiteout of a file of the same layer": {
			[][]file{{{Name: "a", Data: "1"}}, {{Name: "a", Data: "2"}, {Name: ".wh.a"}}}, "a: 2",
		},
		"whiteout before a new directory": {
			[][]file{{{Name: "d/a", Data: "1"}}, {{Name: ".wh.d"}, {Name: "d/"}, {Name: "d/b", Data: "2"}}},
			"d/|d/b: 2",
		},
		"whiteout after a new directory": {
			[][]file{{{Name: "d/a", Data: "1"}}, {{Name: "d/"}, {Name: "d/b", Data: "2"}, {Name: ".wh.d"}}},
			"d/|d/b: 2",
		},
		"whiteout of nothing": {[][]file{{{Name: "a", Data: "1"}}, {{Name: ".wh.b"}, {Name: "c/.wh.d"}}}, "a: 1"},
		"opaque": {
			[][]file{
				{{Name: "d/a", Data: "1"}, {Name: "d/e/f", Data: "1"}, {Name: "g", Data: "1"}},
				{{Name: "d/"}, {Name: "d/b", Data: "2"}, {Name: "d/.wh..wh..opq"}},
			},
			"d/|d/b: 2|g: 1",
		},
		"opaque first": {
			[][]file{
				{{Name: "d/a", Data: "1"}, {Name: "d/e/f", Data: "1"}},
				{{Name: "d/.wh..wh..opq"}, {Name: "d/e/g", Data: "2"}},
			},
			"d/|d/e/|d/e/g: 2",
		},
		"opaque root": {
			[][]file{{{Name: "a", Data: "1"}}, {{Name: ".wh..wh..opq"}, {Name: "b", Data: "2"}}}, "b: 2",
		},
		"data of AUFS": {[][]file{{{Name: ".wh..wh.aufs"}, {Name: "a"}, {Name: ".wh..wh.plnk/1"}}}, "a: "},
		"directory replaces a file": {
			[][]file{{{Name: "a", Data: "1"}}, {{Name: "a/"}, {Name: "a/b", Data: "2"}}}, "a/|a/b: 2",
		},
		"directory without an entry replaces a file": {
			[][]file{{{Name: "a", Data: "1"}}, {{Name: "a/b", Data: "2"}}}, "a/|a/b: 2",
		},
		"file replaces a directory": {[][]file{{{Name: "a/b", Data: "1"}}, {{Name: "a", Data: "2"}}}, "a: 2"},
		"link replaces a directory": {
			[][]file{{{Name: "a/b", Data: "1"}}, {{Name: "a", Link: "c"}}}, "a -> c",
		},
		"directory replaces a link": {
			[][]file{
				{{Name: "usr/lib/x", Data: "1"}, {Name: "lib", Link: "usr/lib"}},
				{{Name: "lib/"}, {Name: "lib/y", Data: "2"}},
			},
			"lib/|lib/y: 2|usr/|usr/lib/|usr/lib/x: 1",
		},
		"file below a link": {
			[][]file{{{Name: "usr/lib/x", Data: "1"}, {Name: "lib", Link: "usr/lib"}}, {{Name: "lib/y", Data: "2"}}},
			"lib -> usr/lib|usr/|usr/lib/|usr/lib/x: 1|usr/lib/y: 2",
		},
		"file below an absolute link that leads out": {
			[][]file{{{Name: "lib", Link: "/../../usr/lib"}}, {{Name: "lib/y", Data: "2"}}},
			"lib -> /../../usr/lib|usr/|usr/lib/|usr/lib/y: 2",
		},
		"directory is kept": {
			[][]file{{{Name: "a/b", Data: "1"}}, {{Name: "a/"}, {Name: "a/c", Data: "2"}}}, "a/|a/b: 1|a/c: 2",
		},
		"hard link": {
			[][]file{{{Name: "a", Data: "1"}, {Name: "d/b", Hard: "a"}}, {{Name: "a", Data: "2"}}}, "a: 2|d/|d/b: 1",
		},
		"hard link to a layer below": {
			[][]file{{{Name: "d/a", Data: "1"}}, {{Name: "b", Hard: "./d/a"}, {Name: ".wh.d"}}}, "b: 1",
		},
		"hard link to a link": {
			[][]file{{{Name: "a", Link: "x"}, {Name: "b", Hard: "a"}}}, "a -> x|b -> x",
		},
		"hard link to nothing": {
			[][]file{{{Name: "b", Hard: "a"}}}, `b: ! hard link to "a": file does not exist`,
		},
		"hard link to a directory": {
			[][]file{{{Name: "a/"}, {Name: "b", Hard: "a"}}}, `a/|b: ! hard link to "a": it is a directory`,
		},
		"names that lead out": {
			[][]file{{{Name: "../../a", Data: "1"}, {Name: "/b", Data: "2"}, {Name: "c/../../d", Data: "3"}}},
			"a: 1|b: 2|d: 3",
		},
		"a device and a pipe": {
			[][]file{{{Name: "null", Type: tar.TypeChar}, {Name: "pipe", Type: tar.TypeFifo}}},
			"null Dc---------|pipe p---------",
		},
		"a loop of links": {
			[][]file{{{Name: "a", Link: "b"}, {Name: "b", Link: "a"}}, {{Name: "a/c", Data: "1"}}}, "a -> b|b -> a",
		},
		"nothing": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var layers [][]byte
			for _, files := range tc.layers {
				layers = append(layers, layer(t, files...))
			}
			tree := openTree(t, write(t, layout(t, containertest.Gzip, layers...)), all)
			var want []string
			if tc.want != "" {
				want = strings.Split(tc.want, "|")
			}
			if diff := cmp.Diff(want, list(t, tree)); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
			if len(tree.Skipped) > 0 || (len(tree.Problems) > 0) != (name == "a loop of links") {
				t.Errorf("skipped %v, problems %v", tree.Skipped, tree.Problems)
			}
		})
	}
}

// TestFileSystem: links are followed within the tree.
func TestFileSystem(t *testing.T) {
	tree := openTree(t, write(t, layout(t, containertest.Plain, layer(t,
		file{Name: "usr/lib/os-release", Data: "ID=x"}, file{Name: "etc/os-release", Link: "../usr/lib/os-release"},
		file{Name: "out", Link: "../../../usr"}, file{Name: "usr/abs", Link: "/usr/lib/"}))), all)
	for _, name := range []string{"etc/os-release", "out/lib/os-release", "usr/abs/os-release"} {
		if b, err := fs.ReadFile(tree, name); err != nil || string(b) != "ID=x" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for _, name := range []string{"usr/none", "etc/os-release/x", "/usr", "usr/../usr", ""} {
		if _, err := tree.Open(name); err == nil {
			t.Errorf("%q was opened", name)
		}
	}
	info, err := tree.Lstat("etc/os-release")
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("%v, %v", info, err)
	}
	f, err := tree.Open("usr/lib/os-release")
	if err != nil {
		t.Fatal(err)
	}
	at, _ := f.(io.ReaderAt)
	b := make([]byte, 3)
	if n, err := at.ReadAt(b, 2); n != 2 || err != io.EOF {
		t.Errorf("%d bytes, %v", n, err)
	}
}
