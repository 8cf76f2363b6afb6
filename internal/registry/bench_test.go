package registry

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/layout"
)

// manyTemplates fills a storage without the syncs of a push.
func manyTemplates(tb testing.TB, count, versions int) string {
	tb.Helper()
	base := tb.TempDir()
	for i := range count {
		t := layout.Template{Schema: layout.Schema, ID: fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012x",
			i), Name: fmt.Sprintf("template %d", i), Gen: 1}
		for n := range versions {
			t.Versions = append(t.Versions,
				layout.Version{Tag: fmt.Sprint("v", n), Number: n, ContentID: fmt.Sprintf("%064x",
					i*100+n), LastPush: 5})
		}
		raw, err := json.Marshal(t)
		if err != nil {
			tb.Fatal(err)
		}
		dir := filepath.Join(base, layout.TemplatesDir, t.ID)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "template.json"), raw, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return base
}

func BenchmarkList10000(b *testing.B) {
	r := open(b, manyTemplates(b, 10000, 3), newClock())
	for b.Loop() {
		if n := len(r.ListTemplates()); n != 10000 {
			b.Fatal(n)
		}
	}
}

func BenchmarkOpen10000(b *testing.B) {
	base := manyTemplates(b, 10000, 3)
	for b.Loop() {
		if err := open(b, base, newClock()).Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListJSON10000 measures a request for the list: at most 50 ms.
func BenchmarkListJSON10000(b *testing.B) {
	r := open(b, manyTemplates(b, 10000, 1), newClock())
	for b.Loop() {
		if _, err := json.Marshal(r.ListTemplates()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDetail10000 measures a request for one template of 10,000 versions, without scan results and with
// some for each.
func BenchmarkDetail10000(b *testing.B) {
	r := open(b, manyTemplates(b, 1, 10000), newClock())
	e := r.snapshot.Load().sorted[0]
	for _, with := range []string{"none", "scanned"} {
		if with == "scanned" {
			for i := range e.template.Versions {
				e.scans.set(e.template.Versions[i].ContentID, &scanNote{ScanSummary: summaryOf(i)})
			}
		}
		b.Run("take/"+with, func(b *testing.B) {
			for b.Loop() {
				if _, err := r.TemplateDetail(e.template.ID); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("json/"+with, func(b *testing.B) {
			for b.Loop() {
				d, err := r.TemplateDetail(e.template.ID)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := json.Marshal(d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpenScanned10000 opens a storage of 1,000 templates whose 10 versions each have scan results.
func BenchmarkOpenScanned10000(b *testing.B) {
	base := manyTemplates(b, 1000, 10)
	r := open(b, base, newClock())
	for _, e := range r.snapshot.Load().sorted {
		dir := filepath.Join(base, layout.TemplatesDir, e.template.ID, ".scans")
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for i := range e.template.Versions {
			if i == 0 && e == r.snapshot.Load().sorted[0] {
				if err := attachScan(r, VersionRef{ID: e.template.ID, Number: &i}, summaryOf(1), "{}"); err != nil {
					b.Fatal(err)
				}
				continue
			}
			first := filepath.Join(base, layout.TemplatesDir, r.snapshot.Load().sorted[0].template.ID, ".scans",
				r.snapshot.Load().sorted[0].template.Versions[0].ContentID+".json.gz")
			if err := os.Link(first, filepath.Join(dir, e.template.Versions[i].ContentID+".json.gz")); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := open(b, base, newClock()).Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestListLeavesOutDamage: damaged directories are in the status, and never in a list.
func TestListLeavesOutDamage(t *testing.T) {
	base := manyTemplates(t, 100, 1)
	for _, name := range []string{"bbbbbbbb-0000-4000-8000-000000000001/0", "not a template"} {
		if err := os.MkdirAll(filepath.Join(base, layout.TemplatesDir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, base, newClock())
	if list := r.ListTemplates(); len(list) != 100 || list[0].LastPush != 5 {
		t.Errorf("%d templates", len(list))
	}
	if n := len(r.Status().Damaged); n != 2 {
		t.Errorf("%d damaged", n)
	}
}
