package scan

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/glob"
)

// TestExclude: what matches is not walked, and counted; what is below it is not.
func TestExclude(t *testing.T) {
	dir := t.TempDir()
	for path, name := range map[string]string{
		"a/node_modules/x": "x", "a/node_modules/y": "y", "b/node_modules/x": "x2", "b/docs/node_modules/z": "z",
	} {
		at := filepath.Join(dir, path)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		text := []byte(`{"name": "` + name + `", "version": "1.0.0"}`)
		if err := os.WriteFile(filepath.Join(at, "package.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		patterns, want []string
		excluded       int
	}{
		{nil, []string{"x", "x2", "y", "z"}, 0},
		{[]string{"/a"}, []string{"x2", "z"}, 1},
		{[]string{"/a/**"}, []string{"x2", "z"}, 1},
		{[]string{"x"}, []string{"y", "z"}, 2},
		{[]string{"/*/node_modules/[xy]/package.json"}, []string{"z"}, 3},
		{[]string{"/a", "docs"}, []string{"x2"}, 2},
		{[]string{"/nothing"}, []string{"x", "x2", "y", "z"}, 0},
		{[]string{"node_modules"}, nil, 3},
	} {
		set, err := glob.NewSet(tc.patterns)
		if err != nil {
			t.Fatal(err)
		}
		err = CatalogEach(t.Context(), Source{Dir, dir}, Options{Exclude: set}, func(inv *Inventory) error {
			var got []string
			for _, p := range inv.Packages {
				got = append(got, p.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) || inv.Excluded != tc.excluded || inv.Partial() {
				t.Errorf("%q: %q, %d excluded, partial %t", tc.patterns, got, inv.Excluded, inv.Partial())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestExcludeFromSBOM: what matches is left out as in the source of the document, with packages that are nowhere else.
func TestExcludeFromSBOM(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bom.json")
	text := `{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [
		{"type": "library", "name": "x", "version": "1.0.0", "purl": "pkg:npm/x@1.0.0", "evidence": {"occurrences": [
			{"location": "/a/node_modules/x/package.json"}, {"location": "/b/node_modules/x/package.json"}]}},
		{"type": "library", "name": "y", "version": "1.0.0", "purl": "pkg:maven/g/y@1.0.0", "evidence": {"occurrences": [
			{"location": "/a/y.ear!/lib/y-1.0.0.jar"}]}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		pattern  string
		want     []string
		excluded int
	}{
		{"/nothing", []string{
			"g:y /a/y.ear!/lib/y-1.0.0.jar", "x /a/node_modules/x/package.json", "x /b/node_modules/x/package.json",
		}, 0},
		{"/a", []string{"x /b/node_modules/x/package.json"}, 2},
		{"y.ear", []string{"x /a/node_modules/x/package.json", "x /b/node_modules/x/package.json"}, 1},
		{"node_modules", []string{"g:y /a/y.ear!/lib/y-1.0.0.jar"}, 2},
	} {
		set, err := glob.NewSet([]string{tc.pattern})
		if err != nil {
			t.Fatal(err)
		}
		source := Source{SBOM, file}
		err = CatalogEach(t.Context(), source, Options{Exclude: set}, func(inv *Inventory) error {
			var got []string
			for _, p := range inv.Packages {
				for _, location := range p.Locations {
					got = append(got, p.Name+" "+location)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) || inv.Excluded != tc.excluded || inv.Partial() {
				t.Errorf("%s: %q, %d excluded, partial %t", tc.pattern, got, inv.Excluded, inv.Partial())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
