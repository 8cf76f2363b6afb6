package scan

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
)

// contentOf reads a file by its location.
func contentOf(ctx context.Context, f *Files, location string) (string, error) {
	r, size, closer, err := f.OpenFile(ctx, location)
	if err != nil {
		return "", err
	}
	text := make([]byte, size)
	_, err = r.ReadAt(text, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return string(text), errors.Join(err, closer.Close())
}

// TestOpenFile: a location is a path of the volume with the longest mount path, or of the other one of a Mac's tree.
func TestOpenFile(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	inv := &Inventory{open: func(context.Context, *Inventory) ([]volume, io.Closer, error) {
		return []volume{
			{Volume: Volume{Name: "S", Role: "system"}, group: "g", open: opened(fstest.MapFS{
				"usr/bin/s": file("system"), "both": file("of the system"),
			})},
			{Volume: Volume{Name: "D", Role: "data"}, group: "g", open: opened(fstest.MapFS{"Users/x": file("data")})},
			{Volume: Volume{Name: "More"}, open: opened(fstest.MapFS{"usr/bin/s": file("more")})},
		}, io.NopCloser(nil), nil
	}}
	files, err := inv.OpenFiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for location, want := range map[string]string{
		"/usr/bin/s": "system", "/Users/x": "data", "/Volumes/More/usr/bin/s": "more", "/both": "of the system",
	} {
		if got, err := contentOf(t.Context(), files, location); err != nil || got != want {
			t.Errorf("%s: %q, %v", location, got, err)
		}
	}
	for _, location := range []string{"/Users/s", "/Volumes/More/x", "", "usr/bin/s", "/../both"} {
		if got, err := contentOf(t.Context(), files, location); err == nil {
			t.Errorf("%q: %q", location, got)
		}
	}
	if _, err := contentOf(t.Context(), files, "/nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := contentOf(ctx, files, "/both"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestOpenFilesOfDirectory opens a directory after it was cataloged.
func TestOpenFilesOfDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := CatalogEach(t.Context(), Source{Dir, dir}, Options{}, func(inv *Inventory) error {
		files, err := inv.OpenFiles(t.Context())
		if err != nil {
			return err
		}
		if got, err := contentOf(t.Context(), files, "/x"); err != nil || got != "text" {
			t.Errorf("%q, %v", got, err)
		}
		return files.Close()
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := (&Inventory{}).OpenFiles(t.Context()); err == nil {
		t.Error("an inventory without a source was opened")
	}
}

// TestOpenFilesOfTemplate opens the version that was scanned, also for another tag with its content, and no other.
func TestOpenFilesOfTemplate(t *testing.T) {
	const id = "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032"
	base, path := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	const lock = `{"packages":{"node_modules/a":{"version":"1.0.0"}}}`
	if err := os.WriteFile(path, linux(t, carried(t, "mapped"), "package-lock.json", []byte(lock)), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(versions ...string) {
		err := disktest.WriteTemplate(t.Context(), base, disktest.Template{ID: id, Versions: versions, Format: "raw"})
		if err != nil {
			t.Fatal(err)
		}
	}
	write(path)
	err := CatalogEach(t.Context(), Source{Template, id}, Options{Storage: base}, func(inv *Inventory) error {
		files, err := inv.OpenFiles(t.Context())
		if err != nil {
			return err
		}
		if got, err := contentOf(t.Context(), files, inv.Packages[0].Locations[0]); err != nil || got != lock {
			t.Errorf("%q, %v", got, err)
		}
		if err := files.Close(); err != nil {
			return err
		}
		inv.ContentID = "another"
		if _, err := inv.OpenFiles(t.Context()); err == nil || !strings.Contains(err.Error(), "pushed again") {
			t.Errorf("another version: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
