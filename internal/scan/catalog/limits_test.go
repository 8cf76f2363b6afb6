package catalog_test

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

// crowd is a tree of very many packages and warnings, most of them several times.
func crowd() catalogtest.Files {
	files := catalogtest.Files{}
	for i := range 400 {
		files[fmt.Sprintf("d%d/e%03d/list", i%7, i)] = fmt.Sprintf("gem g%03d 1.0\npython P.%d 1\npython p-%d 1\nfail",
			i, i%50, i%50)
	}
	return files
}

// An endless tree has a bounded result, which is the same however it is read, and reports what is
// missing.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits catalog.Limits
		want   string
	}{
		"none": {catalog.Limits{}, "450 packages, 400 warnings, 0 unread: "},
		"packages": {
			catalog.Limits{Packages: 100}, "100 packages, 401 warnings, 1 unread: 1100 further entries of packages",
		},
		"warnings": {catalog.Limits{Warnings: 30}, "450 packages, 31 warnings, 1 unread: 370 further warnings"},
		"text":     {catalog.Limits{TextBytes: 100_000}, "packages"},
	} {
		var first *catalog.Result
		for workers := range 5 {
			r, err := catalog.Scan(t.Context(), catalogtest.Tree(crowd()),
				catalog.Options{Extractors: list("list"), Workers: workers, Limits: c.limits})
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = r
			}
			if !reflect.DeepEqual(r, first) {
				t.Fatalf("%s: %d goroutines give another result", name, workers)
			}
		}
		var told []string
		for _, w := range first.Warnings {
			if text, ok := strings.CutPrefix(w.Message, "the tree exceeds the limits of a scan: "); ok &&
				w.Path == "/" &&
				!w.InvalidContent {
				told = append(told, strings.TrimSuffix(text, "; scan parts of it separately"))
			}
		}
		got := fmt.Sprintf("%d packages, %d warnings, %d unread: %s", len(first.Packages), len(first.Warnings),
			first.Unreadable, strings.Join(told, ", "))
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
		if name == "text" && (len(first.Packages) < 50 || len(first.Packages) > 200 || len(told) == 0) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A kept package has all its locations, even those found after a cut.
func TestKeptPackagesAreWhole(t *testing.T) {
	r, err := catalog.Scan(t.Context(), catalogtest.Tree(crowd()),
		catalog.Options{Extractors: list("list"), Limits: catalog.Limits{Packages: 402, Warnings: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Packages[0]; p.Kind != catalog.Python || len(p.Locations) != 8 {
		t.Errorf("%+v", p)
	}
	if l := (catalog.Limits{Packages: 500, Warnings: 2, TextBytes: 1}).Remaining(r); l.Packages != 98 ||
		l.Warnings != 1 ||
		l.TextBytes != 1 {
		t.Errorf("%+v", l)
	}
}

// Whole text files must not stay in memory for the few words kept of them.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("n", 2000)
	catalogtest.Expect(t, list("list"), catalogtest.Files{"list": "gem " + long + " 1\ngem a 1\ngem b " + long},
		"gem a 1 /list",
		"! /list: lines: the file has a package name of more than 1024 bytes, or a version of more than 512")
}

// heavy counts how many of its calls run at a time.
type heavy struct {
	lines
	now, most *atomic.Int32
}

func (h heavy) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	for n := h.now.Add(1); ; {
		if most := h.most.Load(); n <= most || h.most.CompareAndSwap(most, n) {
			break
		}
	}
	defer h.now.Add(-1)
	_, err := f.ReadAll(0)
	runtime.Gosched()
	return nil, err
}

// Few large files are read at a time: their decoded form takes much memory.
func TestLargeFilesWait(t *testing.T) {
	files := catalogtest.Files{}
	for i := range 12 {
		files[fmt.Sprintf("%d/list", i)] = strings.Repeat(" ", 20<<20)
	}
	h := heavy{lines{catalog.Patterns{Names: []string{"list"}}}, &atomic.Int32{}, &atomic.Int32{}}
	if _, err := catalog.Scan(t.Context(), catalogtest.Tree(files),
		catalog.Options{Extractors: []catalog.Extractor{h}, Workers: 8}); err != nil {
		t.Fatal(err)
	}
	if n := h.most.Load(); n != 1 {
		t.Errorf("%d at once", n)
	}
}
