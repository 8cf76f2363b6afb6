package registry

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// TestDeletedIDs: the id of a deleted template is remembered, over a restart too, until there is a template again.
func TestDeletedIDs(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	marks := func() (names []string) {
		entries, _ := os.ReadDir(filepath.Join(base, deletedDir))
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	restart := func() {
		t.Helper()
		must(t, r.Close())
		r = open(t, base, clock)
	}
	if err := r.Delete(t.Context(), idB); farm.CodeOf(err) != farm.CodeNotFound || len(marks()) > 0 {
		t.Errorf("an unknown template: %v, %v", err, marks())
	}
	mustPush(t, r, request(idA, "v1"))
	must(t, r.Delete(t.Context(), idA))
	for _, foreign := range []string{"no id", ".hidden", "AAAAAAAA-0000-4000-8000-000000000009"} {
		must(t, os.WriteFile(filepath.Join(base, deletedDir, foreign), nil, 0o600))
	}
	restart()
	if ids, _ := r.deletedTemplates.list(); !slices.Equal(ids, []string{idA}) {
		t.Errorf("deleted are %v", ids)
	}

	away := errors.New("the store is away")
	var ended []string
	r.SetGrantRemover(func(_ context.Context, ids []string) error {
		ended = append(ended, ids...)
		return away
	})
	if _, err := push(r, request(idA, "v1")); farm.CodeOf(err) != farm.CodeUnavailable || tags(r, idA) != "none" {
		t.Errorf("a push while grants on the deleted template cannot be ended: %v", err)
	}
	mustPush(t, r, request(idB, "v1"))
	if !slices.Equal(ended, []string{idA}) {
		t.Errorf("the grants on %v are ended", ended)
	}
	r.SetGrantRemover(nil)
	mustPush(t, r, request(idA, "v1"))
	if r.deletedTemplates.has(idA) || len(marks()) != 3 {
		t.Errorf("of a template that is there again there are the marks %v", marks())
	}
	must(t, os.WriteFile(filepath.Join(base, deletedDir, idB), nil, 0o600)) // a crash came before the deletion
	restart()
	if r.deletedTemplates.has(idB) || len(marks()) != 3 {
		t.Errorf("of a template that was not deleted there are the marks %v", marks())
	}
}

// TestOldestDeletedIDsAreForgotten: beyond the most ids that are remembered, the ones that were deleted first go.
func TestOldestDeletedIDsAreForgotten(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	dir := filepath.Join(base, deletedDir)
	must(t, os.Mkdir(dir, 0o750))
	for name, when := range map[string]int64{"a": 3, "b": 1, "c": 2} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		must(t, os.Chtimes(filepath.Join(dir, name), time.Unix(when, 0), time.Unix(when, 0)))
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	if left := r.dropOldestDeletions(entries, 2); len(left) != 1 || left[0].Name() != "a" {
		t.Errorf("left are %v", left)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestUnknownTemplate: all operations on a missing template are refused.
func TestUnknownTemplate(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	for what, do := range map[string]func(id string) error{
		"set arch": func(id string) error { return r.SetArch(t.Context(), id, "arm64") },
		"delete":   func(id string) error { return r.Delete(t.Context(), id) },
		"revert":   func(id string) error { return r.Revert(t.Context(), VersionRef{ID: id}) },
		"look":     func(id string) error { _, err := r.PeekManifest(t.Context(), VersionRef{ID: id}); return err },
		"info":     func(id string) error { _, err := r.VersionConfig(VersionRef{ID: id}); return err },
	} {
		for _, id := range []string{idA, "no id", ""} {
			if err := do(id); farm.CodeOf(err) != farm.CodeNotFound {
				t.Errorf("%s of %q: %v", what, id, err)
			}
		}
	}
}

// TestLeftoversOfPushes: a start removes pushes that cannot be resumed, and keeps those that can.
func TestLeftoversOfPushes(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	a := makeContent("disk", api.FileDisk, "a")
	good, err := r.Negotiate(t.Context(), request(idA, "v1", a))
	must(t, err)
	must(t, r.Close())
	uploads := filepath.Join(base, layout.UploadDir)
	record, err := os.ReadFile(filepath.Join(uploads, good.Session, sessionFile))
	must(t, err)
	for name, file := range map[string]struct{ name, text string }{
		squashUploadPrefix + "0123": {"0.part", "bytes"},
		"without-a-record":          {"0.part", "bytes"},
		"not-json":                  {sessionFile, "{"},
		"of-another":                {sessionFile, string(record)},
		".hidden":                   {"kept", ""},
	} {
		must(t, os.Mkdir(filepath.Join(uploads, name), 0o750))
		must(t, os.WriteFile(filepath.Join(uploads, name, file.name), []byte(file.text), 0o600))
	}
	r = open(t, base, clock)
	var left []string
	entries, err := os.ReadDir(uploads)
	must(t, err)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, []string{".hidden", good.Session}) || len(r.allSessions()) != 1 {
		t.Errorf("left are %v, %d pushes", left, len(r.allSessions()))
	}
	roots, err := send(r, good, []content{a})
	must(t, err)
	_, err = r.CommitPush(t.Context(), good.Session, api.PushCommit{Roots: roots})
	must(t, err)
}

// TestPlacesThatAreTaken: an operation fails when another file or directory has the path that it needs.
func TestPlacesThatAreTaken(t *testing.T) {
	take := func(t *testing.T, parts ...string) {
		t.Helper()
		name := filepath.Join(parts...)
		must(t, os.RemoveAll(name))
		must(t, os.WriteFile(name, nil, 0o600))
	}
	t.Run("central logs", func(t *testing.T) {
		base := t.TempDir()
		must(t, os.Mkdir(filepath.Join(base, layout.FilesDir), 0o750))
		take(t, base, layout.CentralLogsDir)
		if r, err := Open(t.Context(), Options{Base: base}); err == nil {
			t.Error("a storage was opened whose logs cannot be kept")
			must(t, r.Close())
		}
	})
	t.Run("trash", func(t *testing.T) {
		base := t.TempDir()
		r := open(t, base, newClock())
		take(t, base, layout.TrashDir)
		_, gcErr := r.GC(t.Context(), GCOptions{EmptyTrash: true})
		for what, err := range map[string]error{"collection": r.CollectGarbage(t.Context()), "GC": gcErr} {
			if err == nil {
				t.Errorf("%s does not tell of a trash that cannot be emptied", what)
			}
		}
	})
	t.Run("aside", func(t *testing.T) {
		h := makeHurt(t)
		flip(t, h.in(layout.TemplatesDir, idB, "template.json"), 0)
		r := open(t, h.base, newClock())
		take(t, h.base, layout.QuarantineDir)
		if _, err := r.Repair(t.Context(), CheckOptions{}); err == nil {
			t.Error("a repair does not tell of a template that cannot be set aside")
		}
		must(t, os.Remove(h.in(layout.QuarantineDir)))
		must(t, os.RemoveAll(h.in(layout.TemplatesDir, idB)))
		out, err := r.Repair(t.Context(), CheckOptions{})
		must(t, err)
		if len(out.SetAside) > 0 || len(r.Status().Damaged) > 0 {
			t.Errorf("of a template that somebody has removed: %+v, %+v", out, r.Status().Damaged)
		}
	})
	t.Run("index", func(t *testing.T) {
		f, err := os.Create(filepath.Join(t.TempDir(), "index"))
		must(t, err)
		must(t, f.Close())
		if err := (&upload{}).writeIndexStep(f, 0, []byte("step")); !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestParentOfAnotherTemplate: a disk may rest on one of another template, also if its own template has other
// disks.
func TestParentOfAnotherTemplate(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	one, two := newGrown(41), newGrown(42)
	for id, g := range map[string]*grown{idA: one, idB: two} {
		c := g.base(t)
		mustPush(t, r, request(id, "v1", c), c)
	}
	c := one.next(t)
	mustPush(t, r, request(idB, "v2", c), c)
	if !slices.Equal(assemble(t, r, idB, "v2"), one.data) {
		t.Error("the disk is another one")
	}
}

// TestRun: the background jobs of a registry continue as long as it runs.
func TestRun(t *testing.T) {
	base := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r, err := Open(t.Context(), Options{Base: base, ScrubRate: 1 << 30, GCGrace: time.Nanosecond})
		must(t, err)
		defer func() { must(t, r.Close()) }()
		_, _ = pushTags(t, r, idA, newGrown(43), maxChainLength)
		loose := makeContent("disk", api.FileDisk, "loose")
		mustPush(t, r, request(idB, "v1", loose), loose)
		must(t, r.Delete(t.Context(), idB))

		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		r.Run(ctx)
		if s := r.scrubStatus(); s.Finished == 0 || s.Verified == 0 {
			t.Errorf("layers are not verified: %+v", s)
		}
		if root, _ := blob.ParseDigest(loose.root()); r.hasStoredLayer(root) {
			t.Error("a layer that nothing needs is not collected")
		}
		d, err := r.TemplateDetail(idA)
		must(t, err)
		if last := d.Versions[len(d.Versions)-1]; len(last.Images) != 1 {
			t.Errorf("a chain is not put together: %v", last.Images)
		}
	})
}
