// Package catalogtest runs extractors on small trees in the source of tests.
//
// It is for tests only, and contains no tree.
//
// Invariant: a tree in memory is scanned as any other is.
package catalogtest

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// Files is a tree: path -> content. A content that begins with "-> " is a symbolic link.
type Files map[string]string

// Tree returns a file system with the files.
func Tree(files Files) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		f := &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			f.Data, f.Mode = []byte(target), fs.ModeSymlink|0o777
		}
		if strings.HasPrefix(text, "\x7fELF") || strings.Contains(name, "bin/") {
			f.Mode |= 0o111
		}
		out[name] = f
	}
	return out
}

// Expect scans files and compares the result with want, a line per package: kind, name, version,
// locations, and other fields in brackets; a warning is "! path: what".
func Expect(t *testing.T, extractors []catalog.Extractor, files Files, want ...string) {
	t.Helper()
	r, err := catalog.Scan(t.Context(), Tree(files), catalog.Options{Extractors: extractors})
	if err != nil {
		t.Fatal(err)
	}
	got := Lines(r)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// Lines formats a result as Expect compares it, in order.
func Lines(r *catalog.Result) []string {
	var out []string
	for _, p := range r.Packages {
		line := fmt.Sprintf("%s %s %s %s", p.Kind, p.Name, p.Version, strings.Join(p.Locations, " "))
		if len(p.Licenses) > 0 {
			line += " [" + strings.Join(p.Licenses, ", ") + "]"
		}
		if ids := strings.Join(p.BundleIDs, ", "); ids != "" {
			line += " <" + ids + ">"
		}
		if p.Replaced {
			line += " (replaced)"
		}
		if p.Development {
			line += " (development)"
		}
		out = append(out, line)
	}
	for _, w := range r.Warnings {
		out = append(out, "! "+w.Path+": "+w.Message)
	}
	slices.Sort(out)
	return out
}
