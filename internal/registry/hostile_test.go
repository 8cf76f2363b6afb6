package registry

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// TestLatePartLeavesTheLayerAlone: a client still sends a part, at the offset of the layer's index, when the
// push is committed.
func TestLatePartLeavesTheLayerAlone(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	c := makeContent("disk", api.FileDisk, "late")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", c))
	must(t, err)
	one, two := bytes.Repeat([]byte("1"), 20), bytes.Repeat([]byte("2"), 20)
	late := blob.PartHeader([]blob.PartFrame{frameOf(one), frameOf(two)})
	body, feed := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- r.PutPart(t.Context(), s.Session, "disk", int64(len(c.stored)), body)
		_ = body.Close() // as a server does, so that further writes of the client fail
	}()
	_, err = feed.Write(append(late, one...))
	must(t, err)
	roots, err := send(r, s, []content{c})
	must(t, err)
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots})
	must(t, err)
	_, _ = feed.Write(two) // refused with its reader
	must(t, feed.Close())
	if err := <-ended; farm.CodeOf(err) != farm.CodeBusy && farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("the late part: %v", err)
	}
	must(t, verifyAll(r))
	if err := r.PutPart(t.Context(), s.Session, "disk", 0, c.part()); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("a part behind the commit: %v", err)
	}
}

// TestSealedUpload: parts are refused while a commit completes the upload, and accepted again when it fails.
func TestSealedUpload(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	c := makeContent("disk", api.FileDisk, "sealed")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", c))
	must(t, err)
	_, u, err := r.openUpload(s.Session, "disk")
	must(t, err)
	u.freeze()
	if err := r.PutPart(t.Context(), s.Session, "disk", 0, c.part()); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("a part into a sealed upload: %v", err)
	}
	u.unfreeze()
	if _, err := r.CommitPush(t.Context(), s.Session,
		api.PushCommit{Roots: map[string]string{"disk": c.root()}}); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("a commit without parts: %v", err)
	}
	roots, err := send(r, s, []content{c})
	must(t, err)
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots})
	must(t, err)
	must(t, verifyAll(r))
}

func frameOf(b []byte) blob.PartFrame {
	return blob.PartFrame{StoredSize: len(b), Sum: sha256.Sum256(b)}
}

// TestPlacesOfParts: no offset is too large to be refused.
func TestPlacesOfParts(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	c := makeContent("disk", api.FileDisk, "far")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", c))
	must(t, err)
	for _, off := range []int64{-1, c.spec.Size, math.MaxInt64, math.MaxInt64 - int64(len(c.stored)) + 1} {
		if err := r.PutPart(t.Context(), s.Session, "disk", off, c.part()); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("part at %d: %v", off, err)
		}
	}
}

// TestTrashOfTheFuture: the clock was ahead when a template was deleted.
func TestTrashOfTheFuture(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	c := makeContent("disk", api.FileDisk, "ahead")
	mustPush(t, r, request(idA, "v1", c), c)
	clock.add(1000 * time.Hour)
	must(t, r.Delete(t.Context(), idA))
	_, err := r.GC(t.Context(), GCOptions{})
	must(t, err)
	clock.add(-1000 * time.Hour)
	out, err := r.GC(t.Context(), GCOptions{EmptyTrash: true})
	if err != nil || out.Purged != 2 || out.Trash != 0 {
		t.Errorf("%+v, %v", out, err)
	}
	if left, err := os.ReadDir(filepath.Join(base, layout.TrashDir)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestTemplateTooLong: a version that would make template.json too long to be read again is refused.
func TestTemplateTooLong(t *testing.T) {
	const most = 64 << 10
	base, clock := t.TempDir(), newClock()
	r, err := Open(t.Context(), Options{Base: base, Now: clock.Now, Hooks: layout.Hooks{MaxTemplateBytes: most}})
	must(t, err)
	mustPush(t, r, request(idA, "v0"))
	r.metadataMu.Lock()
	next := nextGeneration(r.snapshot.Load().findTemplate(idA))
	v := next.Versions[0]
	v.Number, v.Tag, v.Description = 1, "v1", strings.Repeat("d", most)
	next.Versions = append(next.Versions, v)
	err = r.saveTemplate(next)
	r.metadataMu.Unlock()
	if farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), "Version limit") {
		t.Errorf("save: %v", err)
	}
	must(t, r.Close())
	r = open(t, base, clock)
	mustPush(t, r, request(idA, "v2"))
	if got := tags(r, idA); got != "v0 v2" {
		t.Errorf("tags %s", got)
	}
}

// TestScrubListIsMadeOnce: a round goes through the layers in order, from wherever it was, and then lists again.
func TestScrubListIsMadeOnce(t *testing.T) {
	a, b, c := blob.Digest{1}, blob.Digest{2}, blob.Digest{3}
	lists := 0
	list := func() []blob.Digest { lists++; return []blob.Digest{a, b, c} }
	var l scrubList
	for _, step := range []struct {
		cursor string
		passed bool
		want   blob.Digest
		lists  int
	}{
		{"", false, a, 1},
		{a.String(), true, b, 1},
		{b.String(), false, b, 1},
		{b.String(), true, c, 1},
		{c.String(), true, blob.Digest{}, 1},
		{a.String(), true, b, 2},
	} {
		if got, ok := l.nextFrom(step.cursor, step.passed, list); got != step.want || ok == step.want.IsZero() ||
			lists != step.lists {
			t.Errorf("behind %q: %s, %v, listed %d times", step.cursor, got, ok, lists)
		}
	}
}

// TestAbandonedPushesEndInSpiteOfStarts: a start does not make a push young again, and leaves its client an hour.
func TestAbandonedPushesEndInSpiteOfStarts(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	clock.now = time.Now()
	r := open(t, base, clock)
	c := makeContent("disk", api.FileDisk, "abandoned")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", c))
	must(t, err)
	must(t, r.PutPart(t.Context(), s.Session, c.spec.Name, 0, c.part()))
	for _, age := range []time.Duration{20 * time.Hour, 30 * time.Hour} {
		must(t, r.Close())
		clock.add(age)
		r = open(t, base, clock)
		must(t, r.CollectGarbage(t.Context()))
		if len(r.allSessions()) != 1 {
			t.Errorf("the client had no hour after a start, %s later", age)
		}
		clock.add(minEvictableIdle + time.Minute)
		must(t, r.CollectGarbage(t.Context()))
	}
	if _, err := r.useSession(s.Session); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("the abandoned push: %v", err)
	}
}

// TestDamagedDirectoryIsReported: what cannot be read of a version is a sentence, and no list fails for it.
func TestDamagedDirectoryIsReported(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	c := makeContent("disk", api.FileDisk, "directory")
	mustPush(t, r, request(idA, "v1", c), c)
	must(t, os.RemoveAll(filepath.Join(base, layout.TemplatesDir, idA, "0")))
	_, infoErr := r.VersionConfig(VersionRef{ID: idA})
	_, pullErr := r.Manifest(t.Context(), VersionRef{ID: idA})
	for _, err := range []error{infoErr, pullErr} {
		if farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), "Version 0 of template") {
			t.Error(err)
		}
	}
	if len(r.ListTemplates()) != 1 {
		t.Error("the list lost the template")
	}
}

// TestHalfCopiedLayerMakesWay: a layer that an operator began to copy into the storage is pushed.
func TestHalfCopiedLayerMakesWay(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	c := makeContent("disk", api.FileDisk, "copied")
	must(t, os.WriteFile(filepath.Join(base, layout.ImagesDir, c.root()+layout.LayerSuffix), c.stored, 0o600))
	mustPush(t, r, request(idA, "v1", c), c)
	must(t, verifyAll(r))
}

// TestCommittedPushLetsGo: data that only an unfinished push needs is not kept for the hour in which the commit
// may be repeated.
func TestCommittedPushLetsGo(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	c := makeContent("disk", api.FileDisk, "done")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", c))
	must(t, err)
	roots, err := send(r, s, []content{c})
	must(t, err)
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots})
	must(t, err)
	open, err := r.useSession(s.Session)
	must(t, err)
	if u := open.uploads[0]; !u.indexDigest.IsZero() || len(u.parts) > 0 {
		t.Error("index and parts are kept")
	}
	state, err := r.PushSession(t.Context(), s.Session)
	if err != nil || state.Files[0].State != api.PushExists {
		t.Errorf("%+v, %v", state, err)
	}
}

// TestOldPullsAreForgotten: the log of pulls holds the versions that are there, and the newest pull of all.
func TestOldPullsAreForgotten(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	mustPush(t, r, request(idA, "v1"))
	mustPush(t, r, request(idA, "v2"))
	_, err := r.Manifest(t.Context(), VersionRef{ID: idA, Tag: "v2"})
	must(t, err)
	must(t, r.Revert(t.Context(), VersionRef{ID: idA, Tag: "v2"}))
	e, err := r.findTemplate(idA)
	must(t, err)
	e.pulls.logLines = defaultCompactPullsAfter + 1
	clock.add(time.Second)
	_, err = r.Manifest(t.Context(), VersionRef{ID: idA, Tag: "v1"})
	must(t, err)
	if last, err := r.dir.LastPulls(idA); err != nil || len(last) != 1 || e.pulls.logLines != 1 {
		t.Errorf("%v, %d lines, %v", last, e.pulls.logLines, err)
	}
}

// TestFileTooLarge: a file that is too large for the file system is refused, and is not reported as the
// registry's fault.
func TestFileTooLarge(t *testing.T) {
	if err := partError(fmt.Errorf("write: %w", syscall.EFBIG)); farm.CodeOf(err) != farm.CodeTooLarge {
		t.Error(err)
	}
}

// TestStorageThatWentAway: a registry whose directory was moved, or replaced, reports it and is not ready.
func TestStorageThatWentAway(t *testing.T) {
	base := filepath.Join(t.TempDir(), "storage")
	r := open(t, base, newClock())
	mustPush(t, r, request(idA, "v1"))
	must(t, r.Ready(t.Context()))
	away := func(after string) {
		t.Helper()
		_, err := r.Negotiate(t.Context(), request(idA, "v2"))
		for _, err := range []error{err, r.Ready(t.Context())} {
			if farm.CodeOf(err) != farm.CodeUnavailable {
				t.Errorf("%s: %v", after, err)
			}
		}
	}
	must(t, os.Rename(base, base+".moved"))
	away("moved")
	if _, err := r.DiskInfo(t.Context()); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("room: %v", err)
	}
	must(t, os.Mkdir(base, 0o755))
	away("replaced")
	if len(r.ListTemplates()) != 1 {
		t.Error("the list is empty")
	}
	must(t, os.Remove(base))
	must(t, os.Rename(base+".moved", base))
	mustPush(t, r, request(idA, "v2"))
}
