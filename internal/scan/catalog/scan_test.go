package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

// lines is an extractor of files with a package a line: "kind name version".
type lines struct{ claim catalog.Patterns }

func (lines) Name() string                  { return "lines" }
func (l lines) Patterns() catalog.Patterns  { return l.claim }
func (lines) FileRequired(path string) bool { return !strings.Contains(path, "unwanted") }
func (l lines) Extract(ctx context.Context, f *catalog.File) ([]catalog.Package, error) {
	if f.IsSymlink {
		return []catalog.Package{{Kind: catalog.Brew, Name: "link", Version: "1"}}, nil
	}
	data, err := f.ReadAll(1 << 20)
	if err != nil {
		return nil, err
	}
	var out []catalog.Package
	for line := range strings.Lines(string(data)) {
		switch line = strings.TrimSpace(line); line {
		case "panic":
			panic("index out of range\n[5]")
		case "fail":
			err = errors.New("it is\n damaged")
		case "wait":
			<-ctx.Done()
			r, _ := f.Open()
			_, err = io.ReadAll(r)
		default:
			var p catalog.Package
			fmt.Sscanf(line, "%s %s %s", &p.Kind, &p.Name, &p.Version)
			out = append(out, p)
		}
	}
	return out, err
}

func list(names ...string) []catalog.Extractor {
	return []catalog.Extractor{lines{catalog.Patterns{Names: names, Symlinks: true}}}
}

func TestScan(t *testing.T) {
	catalogtest.Expect(t, list("list", "other"), catalogtest.Files{
		"list":            "gem rack 1.0\npython Flask 2.0\nnpm none",
		"a/list":          "gem rack 1.0\npython flask 2.0\ngem rack 1.0",
		"a/unwanted/list": "gem unwanted 1.0",
		"a/other":         "gem rack 2.0\nfail",
		"a/b/list":        "panic",
		"a/c/other":       "-> /nowhere",
		"a/not":           "gem not 1.0",
	},
		"gem rack 1.0 /a/list /list", "python Flask 2.0 /a/list /list", "gem rack 2.0 /a/other",
		"brew link 1 /a/c/other",
		"! /a/other: lines: it is damaged", "! /a/b/list: lines: internal error of the reader: index out of range [5]",
	)
}

// The result is the same however many goroutines there are and in whatever order the directories
// are listed.
func TestScanIsDeterministic(t *testing.T) {
	files := catalogtest.Files{}
	for i := range 300 {
		files[fmt.Sprintf("d%d/e%d/list", i%7, i)] = fmt.Sprintf("gem g%d 1.%d\npython P%d 1\nfail", i%11, i%3, i%5)
		files[fmt.Sprintf("d%d/e%d/f/list", i%7, i)] = fmt.Sprintf("python p%d 1", i%5)
	}
	var first *catalog.Result
	for workers := range 9 {
		r, err := catalog.Scan(t.Context(), catalogtest.Tree(files),
			catalog.Options{Extractors: list("list"), Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = r
		}
		if !reflect.DeepEqual(r, first) {
			t.Fatalf("%d goroutines give another result", workers)
		}
	}
	if first.Files != 600 || first.Dirs != 1+7+300+300 || first.FilesRead != 600 || first.Unreadable != 0 ||
		!first.Warnings[0].InvalidContent || len(first.Warnings) != 300 {
		t.Errorf("counts: %d files, %d folders, %d read, %d unread, %d warnings", first.Files, first.Dirs,
			first.FilesRead, first.Unreadable, len(first.Warnings))
	}
}

func TestPackagesAreFinished(t *testing.T) {
	r, err := catalog.Scan(t.Context(),
		catalogtest.Tree(
			catalogtest.Files{"list": "npm @babel/core 7.0.0\ngo github.com/BurntSushi/toml v1.6.0\njava org.x:y 1\n" +
				"python Zope.Interface_x 1\nbrew openssl@3 3.0_1\nmacos-app App 1\ngem a 1\ngem a 1-java\nrust " +
				"b 1+c\npod " +
				"D 1\nswift github.com/Apple/swift-nio 2.0.0\nmacos macOS 14"}),
		catalog.Options{Extractors: list("list"), CPEs: func(p catalog.Package) []string {
			return []string{"cpe of " + p.Name}
		}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, p := range r.Packages {
		got[p.PURL+" "+p.Language+" "+p.CPEs[0]] = true
	}
	for _, want := range []string{
		"pkg:npm/%40babel/core@7.0.0 javascript cpe of @babel/core",
		"pkg:golang/github.com/burntsushi/toml@v1.6.0 go cpe of github.com/BurntSushi/toml",
		"pkg:maven/org.x/y@1 java cpe of org.x:y", "pkg:pypi/zope.interface-x@1 python cpe of Zope.Interface_x",
		"pkg:brew/openssl%403@3.0_1  cpe of openssl@3", "pkg:generic/macos/App@1  cpe of App",
		"pkg:gem/a@1 ruby cpe of a", "pkg:gem/a@1?platform=java ruby cpe of a",
		"pkg:cargo/b@1%2Bc rust cpe of b", "pkg:cocoapods/D@1 swift cpe of D",
		"pkg:swift/github.com/Apple/swift-nio@2.0.0 swift cpe of github.com/Apple/swift-nio",
		"pkg:generic/macos/macOS@14  cpe of macOS",
	} {
		if !got[want] {
			t.Errorf("%q is not in %v", want, got)
		}
	}
}

func TestScanEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if _, err := catalog.Scan(ctx, fstest.MapFS{"list": {}}, catalog.Options{}); !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
	r, err := catalog.Scan(t.Context(),
		catalogtest.Tree(catalogtest.Files{"list": "gem a 1\nwait", "b/list": "gem b 1"}),
		catalog.Options{Extractors: list("list"), FileTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(catalogtest.Lines(r)); !strings.Contains(got,
		"! /list: lines: reading the file took too long") ||
		!strings.Contains(got, "gem b 1") {
		t.Errorf("got %s", got)
	}
}

// hostile is an endless tree, with names that lead elsewhere.
type hostile struct{ fstest.MapFS }

type again struct {
	fs.DirEntry
	name string
}

func (a again) Name() string { return a.name }

func (h hostile) ReadDir(name string) ([]fs.DirEntry, error) {
	e, err := h.MapFS.ReadDir("a")
	if err != nil {
		return nil, err
	}
	out := []fs.DirEntry{again{e[0], "list"}}
	for _, bad := range []string{"..", "", ".", "a/b", "/"} {
		out = append(out, again{e[0], bad})
	}
	top, err := h.MapFS.ReadDir(".")
	if err != nil {
		return nil, err
	}
	if name == "a" {
		return append(out, again{top[0], "a"}), errors.New("the end is damaged")
	}
	return append(out, again{top[0], "a"}), nil
}

func (h hostile) Open(string) (fs.File, error) { return h.MapFS.Open("a/list") }

func TestHostileTree(t *testing.T) {
	r, err := catalog.Scan(t.Context(), hostile{catalogtest.Tree(catalogtest.Files{"a/list": "gem a 1"})},
		catalog.Options{Extractors: list("list")})
	if err != nil {
		t.Fatal(err)
	}
	var deep, names, damaged int
	for _, w := range r.Warnings {
		switch w.Message {
		case "the directory is too deep and was not read":
			deep++
		case "it holds an entry with an impossible name":
			names++
		case "the directory cannot be listed: the end is damaged":
			damaged++
		}
	}
	if deep != 1 || names == 0 || damaged != 1 || len(r.Packages) != 1 || len(r.Packages[0].Locations) != 513 {
		t.Errorf("%d too deep, %d names, %d damaged, %d warnings; packages %d", deep, names, damaged, len(r.Warnings),
			len(r.Packages))
	}
}

// numbered is a tree whose directories have inode numbers, all from the same few.
type numbered struct{ fstest.MapFS }

type numberedInfo struct {
	fs.FileInfo
	id
}

type id uint64

func (i id) ID() uint64         { return uint64(i) }
func (n numberedInfo) Sys() any { return n.id }

type numberedEntry struct{ fs.DirEntry }

func (n numberedEntry) Info() (fs.FileInfo, error) {
	info, err := n.DirEntry.Info()
	return numberedInfo{info, id(len(n.Name()))}, err
}

func (n numbered) Stat(name string) (fs.FileInfo, error) {
	info, err := n.MapFS.Stat(name)
	return numberedInfo{info, 0}, err
}

func (n numbered) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := n.MapFS.ReadDir(name)
	for i, e := range list {
		list[i] = numberedEntry{e}
	}
	return list, err
}

func TestDirectoryIsReadOnce(t *testing.T) {
	tree := numbered{
		catalogtest.Tree(catalogtest.Files{"a/list": "gem a 1", "a/b/list": "gem b 1", "cc/list": "gem c 1"}),
	}
	r, err := catalog.Scan(t.Context(), tree, catalog.Options{Extractors: list("list"), Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(catalogtest.Lines(r)),
		"[! /a/b: the directory was already read under another name gem a 1 /a/list gem c 1 /cc/list]"; got != want {
		t.Errorf("got %s", got)
	}
}

func TestLeaveAndProgress(t *testing.T) {
	calls := 0
	r, err := catalog.Scan(t.Context(),
		catalogtest.Tree(catalogtest.Files{"a/list": "gem a 1", "b/list": "gem b 1"}), catalog.Options{
			Extractors: list("list"), SkipDir: func(path string) bool { return path == "a" },
			Progress: func(int, int) { calls++ },
		})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Skipped) != 1 || r.Skipped[0].Path != "/a" || len(r.Packages) != 1 || r.Packages[0].Name != "b" {
		t.Errorf("skipped %v, found %v", r.Skipped, r.Packages)
	}
}
