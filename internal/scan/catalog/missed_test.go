package catalog_test

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// broken is a tree whose disk fails in one file and one folder.
type broken struct{ fstest.MapFS }

var errDisk = errors.New("the disk fails")

func (b broken) Open(name string) (fs.File, error) {
	if name == "bad/list" || name == "shut" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errDisk}
	}
	return b.MapFS.Open(name)
}

func (b broken) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == "shut" {
		return nil, errDisk
	}
	return b.MapFS.ReadDir(name)
}

// TestWhatIsMissed: a scan is not whole when the file system could not give something, and is
// whole when what it gave makes no sense.
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
		odd[w.Path] = w.Odd
	}
	if len(odd) != 3 || odd["/bad/list"] || odd["/shut"] || !odd["/odd/list"] || r.Unread != 2 || len(r.Packages) != 1 {
		t.Errorf("%d unread, %d packages, warnings %v", r.Unread, len(r.Packages), r.Warnings)
	}
}
