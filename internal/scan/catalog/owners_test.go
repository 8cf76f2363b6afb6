package catalog_test

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
	"github.com/buildyard/buildyard/internal/scan/catalog/dpkg"
	"github.com/buildyard/buildyard/internal/scan/catalog/npm"
)

// ownedTree has packages of dpkg, each of which owns the same npm package at another path.
func ownedTree(n int) fstest.MapFS {
	files := catalogtest.Files{"etc/os-release": "ID=debian\nVERSION_ID=12\n"}
	var status strings.Builder
	for i := range n {
		fmt.Fprintf(&status, "Package: p%d\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n\n", i)
		file := fmt.Sprintf("usr/lib/p%d/node_modules/ws/package.json", i)
		files[file] = `{"name":"ws","version":"8.0.0"}`
		files[fmt.Sprintf("var/lib/dpkg/info/p%d.list", i)] = "/" + file + "\n"
	}
	files["var/lib/dpkg/status"] = status.String()
	return catalogtest.Tree(files)
}

func scanOwned(t *testing.T, tree fs.FS, o catalog.Options) *catalog.Result {
	t.Helper()
	o.Extractors = []catalog.Extractor{dpkg.Packages{}, npm.InstalledPackages{}}
	r, err := catalog.Scan(t.Context(), tree, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOwnersAreLimited: a package becomes as many as it has owners, up to the limit of a scan; the result is the same
// with any number of goroutines.
func TestOwnersAreLimited(t *testing.T) {
	const n = 50
	if r := scanOwned(t, ownedTree(n), catalog.Options{}); len(r.Packages) != 2*n || len(r.Warnings) > 0 {
		t.Errorf("%d packages, %v", len(r.Packages), r.Warnings)
	}
	limits := catalog.Limits{Packages: n + 10}
	want := scanOwned(t, ownedTree(n), catalog.Options{Limits: limits, Workers: 1})
	if len(want.Packages) > limits.Packages || want.Unreadable != 1 || len(want.Warnings) != 1 ||
		!strings.Contains(want.Warnings[0].Message, "50 further entries of packages") {
		t.Errorf("%d packages, %d unreadable, %v", len(want.Packages), want.Unreadable, want.Warnings)
	}
	got := scanOwned(t, ownedTree(n), catalog.Options{Limits: limits, Workers: 8})
	if !reflect.DeepEqual(got.Packages, want.Packages) || !reflect.DeepEqual(got.Warnings, want.Warnings) {
		t.Errorf("%d packages with 8 goroutines, %v", len(got.Packages), got.Warnings)
	}
}

// unreadableList is a tree in which a list of files cannot be read.
type unreadableList struct{ fstest.MapFS }

var errList = errors.New("the disk fails")

func (u unreadableList) Open(name string) (fs.File, error) {
	if name == "var/lib/dpkg/info/p1.list" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errList}
	}
	return u.MapFS.Open(name)
}

// TestUnreadableList: packages without their owner are reported, with a warning.
func TestUnreadableList(t *testing.T) {
	r := scanOwned(t, unreadableList{ownedTree(2)}, catalog.Options{Workers: 1})
	if len(r.Packages) != 4 || r.Unreadable != 1 || len(r.Warnings) != 1 || r.Warnings[0] != (catalog.Warning{
		Path:    "/var/lib/dpkg/status",
		Message: "deb/dpkg: the owners of files are not all known: the disk fails",
	}) {
		t.Errorf("%d packages, %d unreadable, %v", len(r.Packages), r.Unreadable, r.Warnings)
	}
}

// TestLinkedDirectories: databases name files by directories that are links, of which some lead to others.
func TestLinkedDirectories(t *testing.T) {
	for link, file := range map[string]string{
		"/lib/": "usr/lib/", "/usr/sbin/": "usr/bin/", "/sbin/": "usr/bin/", "/bin/": "usr/bin/", "/": "",
		"/lib64/": "usr/lib64/", "/other/": "other/", "./": "", "": "",
	} {
		file += "x/node_modules/ws/package.json"
		listed := link + "x/node_modules/ws/package.json"
		r := scanOwned(t, catalogtest.Tree(catalogtest.Files{
			"lib": "-> usr/lib", "sbin": "-> usr/sbin", "usr/sbin": "-> bin", "bin": "-> /usr/bin", "loop": "-> loop",
			"lib64": "-> ./usr/../usr/lib64", "up": "-> ..",
			"var/lib/dpkg/status":       "Package: a\nStatus: install ok installed\nVersion: 1\n",
			"var/lib/dpkg/info/a.list":  listed + "\n",
			file:                        `{"name":"ws","version":"8.0.0"}`,
			"y/node_modules/ws/" + file: "",
		}), catalog.Options{})
		if len(r.Packages) != 2 || r.Packages[1].Owner != "deb/a@1" {
			t.Errorf("%s: %+v", listed, r.Packages)
		}
	}
}
