package catalog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/extractors"
)

// A walk and a query of single files agree, file by file.
func TestFinderSeesWhatAWalkSees(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"real/node_modules/ws/package.json": `{"name":"ws","version":"8.0.0"}`,
		"real/readme.md":                    "", "real/tool": strings.Repeat("x", 1000),
		"real/data": strings.Repeat("x", 1000),
	} {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "real/tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	root, closer, err := catalog.OpenMachine(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	f := catalog.NewFinder(root, catalog.Options{Extractors: extractors.All()})
	from := strings.TrimPrefix(filepath.ToSlash(dir), "/")
	listing, err := f.Walk(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range listing.Wanted {
		got = append(got, strings.TrimPrefix(w.Path, from+"/"))
	}
	if s := strings.Join(got, " "); s != "real/node_modules/ws/package.json real/tool" {
		t.Errorf("a walk lists %s", s)
	}
	names := catalog.NewNameFilter(extractors.All())
	for name, want := range map[string]bool{
		"real/node_modules/ws/package.json": true, "real/tool": true, "real/data": false, "real/readme.md": false,
		"link/node_modules/ws/package.json": false, "link/tool": false, "missing/package.json": false, "real": false,
	} {
		w, ok := f.WantedAt(from + "/" + name)
		if ok != want {
			t.Errorf("%s matters: %v", name, ok)
		}
		if ok && !names.Matches(filepath.Base(name)) {
			t.Errorf("the name of %s does not", name)
		}
		if name == "real/node_modules/ws/package.json" {
			if found := f.ReadFile(t.Context(), w); len(found.Packages) != 1 ||
				found.Packages[0].Locations[0] != dir+"/"+name {
				t.Errorf("%+v", found)
			}
		}
	}
	path := from + "/real/node_modules/ws/package.json"
	before, err := f.StampOf(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod("/"+path, 0o600); err != nil {
		t.Fatal(err)
	}
	if after, err := f.StampOf(path); err != nil || after.Hash == before.Hash {
		t.Errorf("the mark stays when permissions change: %v", err)
	}
}
