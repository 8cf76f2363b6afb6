package registry

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// TestLatePartLeavesTheLayerAlone: somebody still sends a part, at the place where the layer's index will be, when
// the push is committed.
func TestLatePartLeavesTheLayerAlone(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	c := makeContent("disk", api.FileDisk, "late")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", c))
	must(t, err)
	one, two := bytes.Repeat([]byte("1"), 20), bytes.Repeat([]byte("2"), 20)
	late := blob.PartHeader([]blob.PartFrame{frameOf(one), frameOf(two)})
	body, feed := io.Pipe()
	ended := make(chan error)
	go func() { ended <- r.PutPart(t.Context(), s.Session, "disk", int64(len(c.stored)), body) }()
	_, err = feed.Write(append(late, one...))
	must(t, err)
	roots, err := send(r, s, []content{c})
	must(t, err)
	_, err = r.Commit(t.Context(), s.Session, api.PushCommit{Roots: roots})
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

// TestSealedUpload: parts are refused while a commit puts them together, and taken again when it fails.
func TestSealedUpload(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	c := makeContent("disk", api.FileDisk, "sealed")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", c))
	must(t, err)
	_, u, err := r.openFile(s.Session, "disk")
	must(t, err)
	u.seal()
	if err := r.PutPart(t.Context(), s.Session, "disk", 0, c.part()); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("a part into a sealed upload: %v", err)
	}
	u.unseal()
	if _, err := r.Commit(t.Context(), s.Session, api.PushCommit{Roots: map[string]string{"disk": c.root()}}); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("a commit without parts: %v", err)
	}
	roots, err := send(r, s, []content{c})
	must(t, err)
	_, err = r.Commit(t.Context(), s.Session, api.PushCommit{Roots: roots})
	must(t, err)
	must(t, verifyAll(r))
}

func frameOf(b []byte) blob.PartFrame {
	return blob.PartFrame{Stored: len(b), Sum: sha256.Sum256(b)}
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
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	mustPush(t, r, request(idA, "v0"))
	r.write.Lock()
	next := successor(r.snap.Load().template(idA))
	v := next.Versions[0]
	v.Number, v.Tag, v.Description = 1, "v1", strings.Repeat("d", 64<<20)
	next.Versions = append(next.Versions, v)
	err := r.save(next)
	r.write.Unlock()
	if farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), "as many versions") {
		t.Errorf("save: %v", err)
	}
	must(t, r.Close())
	r = open(t, base, clock)
	mustPush(t, r, request(idA, "v2"))
	if got := tags(r, idA); got != "v0 v2" {
		t.Errorf("tags %s", got)
	}
}
