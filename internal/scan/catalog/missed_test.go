package catalog_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// broken is a tree whose disk fails in one file and one directory.
type broken struct{ fstest.MapFS }

var errDisk = errors.New("the disk fails")

func (b broken) Open(name string) (fs.File, error) {
	if name == "bad/list" || name == "shut" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errDisk}
	}
	f, err := b.MapFS.Open(name)
	if name == "half/list" && err == nil {
		return half{f.(catalog.Content), f}, nil
	}
	return f, err
}

// half is a file that cannot be read.
type half struct {
	catalog.Content
	file fs.File
}

func (h half) Read([]byte) (int, error)          { return 0, errDisk }
func (h half) ReadAt([]byte, int64) (int, error) { return 0, errDisk }
func (h half) Stat() (fs.FileInfo, error)        { return h.file.Stat() }
func (h half) Close() error                      { return h.file.Close() }

// careless finds a package even when it could not read the file.
type careless struct{ catalog.Extractor }

func (c careless) Extract(ctx context.Context, f *catalog.File) ([]catalog.Package, error) {
	found, _ := c.Extractor.Extract(ctx, f)
	return found, nil
}

// TestCarelessExtractors: an unreadable part is reported, even when the extractor ignores the
// error.
func TestCarelessExtractors(t *testing.T) {
	tree := broken{fstest.MapFS{"half/list": {Data: []byte("gem a 1")}}}
	r, err := catalog.Scan(t.Context(), tree,
		catalog.Options{Extractors: []catalog.Extractor{careless{list("list")[0]}}})
	if err != nil || r.Unreadable != 1 || len(r.Warnings) != 1 || r.Warnings[0].InvalidContent {
		t.Errorf("%v: %+v", err, r)
	}
}

// slow ends with its time, and reads nothing.
type slow struct{ catalog.Extractor }

func (slow) Extract(ctx context.Context, _ *catalog.File) ([]catalog.Package, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestSlowExtractors: a file that takes too long is not read, even when the extractor itself notices it.
func TestSlowExtractors(t *testing.T) {
	tree := fstest.MapFS{"list": {Data: []byte("gem a 1")}}
	r, err := catalog.Scan(t.Context(), tree, catalog.Options{
		Extractors: []catalog.Extractor{slow{list("list")[0]}}, FileTimeout: time.Millisecond,
	})
	if err != nil || r.Unreadable != 1 || len(r.Warnings) != 1 || r.Warnings[0].InvalidContent {
		t.Errorf("%v: %+v", err, r)
	}
}

func (b broken) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == "shut" {
		return nil, errDisk
	}
	return b.MapFS.ReadDir(name)
}

// TestWhatIsMissed: a scan is incomplete when the file system could not read something, and is
// complete when the data it read is invalid.
func TestWhatIsMissed(t *testing.T) {
	tree := broken{fstest.MapFS{
		"bad/list": {Data: []byte("gem a 1")}, "shut/list": {Data: []byte("gem b 1")},
		"odd/list": {Data: []byte("fail")}, "list": {Data: []byte("gem c 1")},
	}}
	r, err := catalog.Scan(t.Context(), tree, catalog.Options{Extractors: list("list")})
	if err != nil {
		t.Fatal(err)
	}
	odd := map[string]bool{}
	for _, w := range r.Warnings {
		odd[w.Path] = w.InvalidContent
	}
	if len(odd) != 3 || odd["/bad/list"] || odd["/shut"] || !odd["/odd/list"] || r.Unreadable != 2 ||
		len(r.Packages) != 1 {
		t.Errorf("%d unread, %d packages, warnings %v", r.Unreadable, len(r.Packages), r.Warnings)
	}
}
