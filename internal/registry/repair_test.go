package registry

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/layout"
)

// failingSync fails the first sync after a step, once. Other syncs succeed and do nothing.
type failingSync struct {
	mu       sync.Mutex // guards the fields below
	at, step string     // the step that fails, and the newest one
}

func (s *failingSync) hooks() layout.Hooks {
	return layout.Hooks{
		Step: func(step string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.step = step
		},
		Sync: func(*os.File) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.at == "" || s.step != s.at {
				return nil
			}
			s.at = ""
			return errSync
		},
	}
}

func (s *failingSync) failAt(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = step
}

func openFailing(t *testing.T, base string) (*Registry, *failingSync) {
	t.Helper()
	s := &failingSync{}
	r, err := Open(t.Context(), Options{Base: base, Now: newClock().Now, Hooks: s.hooks()})
	must(t, err)
	t.Cleanup(func() { _ = r.Close() }) // a test may close it before
	return r, s
}

// TestCheckOfUnreadableStorage: a check of a storage whose templates or trash cannot be listed fails instead of
// reporting that nothing is wrong.
func TestCheckOfUnreadableStorage(t *testing.T) {
	for _, dir := range []string{layout.TemplatesDir, layout.TrashDir} {
		t.Run(dir, func(t *testing.T) {
			h := makeHurt(t)
			must(t, os.RemoveAll(h.in(dir)))
			must(t, os.WriteFile(h.in(dir), nil, 0o600))
			for _, o := range []CheckOptions{{}, {Deep: true}} {
				report, err := CheckStorage(t.Context(), h.base, o)
				if !errors.Is(err, syscall.ENOTDIR) || report.Templates != 0 {
					t.Errorf("%+v: %+v, %v", o, report, err)
				}
			}
		})
	}
}

// TestProgressOfDeepCheck: the total of a deep check counts a layer that several versions share once, and the
// check ends when all of it is done.
func TestProgressOfDeepCheck(t *testing.T) {
	h := makeHurt(t)
	r := open(t, h.base, newClock())
	mustPush(t, r, request(idB, "v2", h.a), h.a)
	must(t, r.Close())
	want := h.a.index.StoredBytes() + h.b.index.StoredBytes() + h.c.index.StoredBytes()

	var last api.StorageJobProgress
	report, err := CheckStorage(t.Context(), h.base, CheckOptions{Deep: true, Progress: func(p api.StorageJobProgress) {
		if last = p; p.Total != want {
			t.Errorf("a total of %d bytes, want %d", p.Total, want)
		}
	}})
	must(t, err)
	if last.Done != want || report.Verified != want || report.Layers != 3 {
		t.Errorf("%+v, %+v", last, report)
	}
}

// TestRepairOfAllTemplates: a repair rewrites the text files of every template.
func TestRepairOfAllTemplates(t *testing.T) {
	h := makeHurt(t)
	r := open(t, h.base, newClock())
	for _, id := range []string{idA, idB} {
		must(t, os.WriteFile(h.in(layout.TemplatesDir, id, "0", "images"), []byte("edited\n"), 0o600))
	}
	out, err := r.Repair(t.Context(), CheckOptions{})
	must(t, err)
	if len(out.Repaired) != 2 || len(out.Left) > 0 {
		t.Errorf("%+v", out)
	}
	must(t, verifyAll(r)) // with the text files
}

// TestRepairOfUnreadableList: a repair fails when it cannot read a text file of a version. The version can
// still be pulled, and the next repair succeeds once the obstacle is gone.
func TestRepairOfUnreadableList(t *testing.T) {
	h := makeHurt(t)
	r := open(t, h.base, newClock())
	images := h.in(layout.TemplatesDir, idB, "0", "images")
	must(t, os.Remove(images))
	must(t, os.Mkdir(images, 0o750))
	if _, err := r.Repair(t.Context(), CheckOptions{}); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("repair: %v", err)
	}
	if n := pullable(r); n != 3 {
		t.Errorf("%d versions can be pulled", n)
	}
	must(t, os.Remove(images))
	out, err := r.Repair(t.Context(), CheckOptions{})
	must(t, err)
	if len(out.Repaired) != 1 || len(out.Left) > 0 {
		t.Errorf("%+v", out)
	}
	must(t, verifyAll(r))
}

// TestRepairWithFailedQuarantine: a repair whose move of an unreadable layer to the trash is not durable fails.
// It can be repeated.
func TestRepairWithFailedQuarantine(t *testing.T) {
	h := makeHurt(t)
	name := strings.Repeat("1", 64) + layout.LayerSuffix
	must(t, os.WriteFile(h.in(layout.ImagesDir, name), []byte("no layer"), 0o600))
	r, s := openFailing(t, h.base)
	s.failAt("trash.dirsync")
	if _, err := r.Repair(t.Context(), CheckOptions{}); !errors.Is(err, errSync) {
		t.Errorf("repair: %v", err)
	}
	out, err := r.Repair(t.Context(), CheckOptions{})
	must(t, err)
	if len(out.Left) > 0 || len(layerFiles(t, h.base)) != 3 {
		t.Errorf("%+v, %v", out, layerFiles(t, h.base))
	}
	must(t, verifyAll(r))
}

// TestDeleteWithoutMark: a template is not deleted when the directory that records its ID is not durable.
// Another attempt deletes it.
func TestDeleteWithoutMark(t *testing.T) {
	h := makeHurt(t)
	r, s := openFailing(t, h.base)
	s.failAt("mkdir.dirsync")
	if err := r.Delete(t.Context(), idA); !errors.Is(err, errSync) {
		t.Errorf("delete: %v", err)
	}
	mark := filepath.Join(h.base, deletedDir, idA)
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) || r.deletedTemplates.has(idA) ||
		tags(r, idA) != "v1 v2" {
		t.Errorf("after a failed delete: versions %s, mark: %v", tags(r, idA), err)
	}
	must(t, verifyAll(r))
	must(t, r.Delete(t.Context(), idA))
	if _, err := os.Stat(mark); err != nil || tags(r, idA) != "none" {
		t.Errorf("after a delete: versions %s, mark: %v", tags(r, idA), err)
	}
}

// TestOpenOfUnreadableFiles: a storage is not opened when a directory of the file server cannot be read.
func TestOpenOfUnreadableFiles(t *testing.T) {
	base := t.TempDir()
	must(t, open(t, base, newClock()).Close())
	odd := filepath.Join(base, layout.FilesDir, "\xff")
	if err := os.Mkdir(odd, 0o750); err != nil {
		t.Skipf("the file system has only names in UTF-8: %v", err)
	}
	if r, err := Open(t.Context(), Options{Base: base}); err == nil ||
		!strings.Contains(err.Error(), "list files") {
		t.Errorf("opened: %v, %v", r != nil, err)
	}
	must(t, os.Remove(odd))
	must(t, open(t, base, newClock()).Close()) // the failed Open has released the storage
}
