package registry

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestVersionsOfATemplate(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	a, b := makeContent("disk", api.FileDisk, "a"), makeContent("disk", api.FileDisk, "b")
	memory := makeContent("memory", api.FileState, "m")
	req := request(idA, "v1", a, memory)
	req.NVRAM, req.Arch, req.Description = []byte("nv"), "arm64", "first"
	first := mustPush(t, r, req, a, memory)
	mustPush(t, r, request(idA, "v2", b), b)
	third := mustPush(t, r, request(idA, "v3", a), a)
	if tags(r, idA) != "v1 v2 v3" || first.Number != 0 || third.Number != 2 || first.ContentID == third.ContentID {
		t.Fatalf("%s, %+v, %+v", tags(r, idA), first, third)
	}
	if err := verifyAll(r); err != nil {
		t.Fatal(err)
	}
	d, _ := r.TemplateDetail(idA)
	// v1 and v3 share a layer: the template counts it once.
	if d.Size != first.Size+d.Versions[1].Size || d.Versions[0].StateFiles[0] != memory.root()+".ank" ||
		d.Arch != "arm64" {
		t.Fatalf("%+v", d)
	}
	before := []any{r.ListTemplates(), d, r.Status()}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = open(t, base, newClock())
	d, _ = r.TemplateDetail(idA)
	if after := []any{r.ListTemplates(), d, r.Status()}; fmt.Sprint(after) != fmt.Sprint(before) {
		t.Fatalf("after a restart\n%+v\nbefore\n%+v", after, before)
	}
}

func TestRevert(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	a := makeContent("disk", api.FileDisk, "a")
	number := func(n int) *int { return &n }
	for _, c := range []struct {
		ref  VersionRef
		left string
		code farm.Code
	}{
		{VersionRef{}, "v1 v2", ""},
		{VersionRef{Tag: "v2"}, "v1", ""},
		{VersionRef{Number: number(1)}, "v1", ""},
		{VersionRef{Number: number(0)}, "", ""},
		{VersionRef{Tag: "v1", Number: number(0)}, "", ""},
		{VersionRef{Tag: "v1", Number: number(1)}, "v1 v2 v3", farm.CodeNoVersion},
		{VersionRef{Tag: "no"}, "v1 v2 v3", farm.CodeNoVersion},
		{VersionRef{Number: number(3)}, "v1 v2 v3", farm.CodeNoVersion},
		{VersionRef{ID: idB}, "v1 v2 v3", farm.CodeNotFound},
		{VersionRef{ID: "a name"}, "v1 v2 v3", farm.CodeNotFound},
	} {
		for _, tag := range []string{"v1", "v2", "v3"} {
			mustPush(t, r, request(idA, tag, a), a)
		}
		if c.ref.ID == "" {
			c.ref.ID = idA
		}
		err := r.Revert(t.Context(), c.ref)
		if farm.CodeOf(err) != c.code || tags(r, idA) != c.left {
			t.Fatalf("%+v: %v, left %q", c.ref, err, tags(r, idA))
		}
		if c.ref.Tag == "no" && err.Error() != "Did not find any versions with tag no" {
			t.Fatalf("message %q", err)
		}
		if err := r.Delete(t.Context(), idA); err != nil {
			t.Fatal(err)
		}
	}
	mustPush(t, r, request(idA, "v1", a), a)
	if err := r.Revert(t.Context(), VersionRef{ID: idA}); err != nil {
		t.Fatal(err)
	}
	if err := r.Revert(t.Context(), VersionRef{ID: idA}); farm.CodeOf(err) != farm.CodeNoVersion {
		t.Fatalf("revert of nothing: %v", err)
	}
	if res := mustPush(t, r, request(idA, "v1", a), a); res.Number != 0 {
		t.Fatalf("%+v", res)
	}
}

// TestNumberIsReused pushes other bytes under the number of a reverted version.
func TestNumberIsReused(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	a, b := makeContent("disk", api.FileDisk, "a"), makeContent("disk", api.FileDisk, "b")
	one := mustPush(t, r, request(idA, "v1", a), a)
	req := request(idA, "v1", b)
	req.Revert = &api.PushRevert{}
	two := mustPush(t, r, req, b)
	if two.Number != one.Number || two.ContentID == one.ContentID {
		t.Fatalf("%+v, %+v", one, two)
	}
	if _, err := r.Manifest(t.Context(),
		VersionRef{ID: idA, ContentID: one.ContentID}); farm.CodeOf(err) != farm.CodeNoVersion {
		t.Fatalf("the old content is still there: %v", err)
	}
	if err := verifyAll(r); err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentPushesOfOneTag(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	const pushers = 8
	var wg sync.WaitGroup
	var mu sync.Mutex
	var won int
	for i := range pushers {
		c := makeContent("disk", api.FileDisk, fmt.Sprint(i))
		wg.Go(func() {
			_, err := push(r, request(idA, "v1", c), c)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if farm.CodeOf(err) != farm.CodeRefused {
				t.Errorf("loser: %v", err)
			}
		})
	}
	wg.Wait()
	if won != 1 || tags(r, idA) != "v1" {
		t.Fatalf("%d won, %s", won, tags(r, idA))
	}
	if err := verifyAll(r); err != nil {
		t.Fatal(err)
	}
}

func TestGenerationOfACommit(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	a := makeContent("disk", api.FileDisk, "a")
	first := mustPush(t, r, request(idA, "v1", a), a)
	req := request(idA, "v2", a)
	req.Gen = &first.Gen
	s, err := r.Negotiate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	roots, err := send(r, s, []content{a})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetArch(t.Context(), idA, "arm64"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.CommitPush(t.Context(), s.Session,
		api.PushCommit{Roots: roots}); farm.CodeOf(err) != farm.CodeConflict {
		t.Fatalf("base moved: %v", err)
	}
	gen := first.Gen + 1
	done, err := r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots, Gen: &gen})
	if err != nil || done.Gen != gen+1 {
		t.Fatalf("%+v, %v", done, err)
	}
	again, err := r.CommitPush(t.Context(), s.Session, api.PushCommit{})
	if err != nil || again != done || tags(r, idA) != "v1 v2" {
		t.Fatalf("repeated commit: %+v, %v", again, err)
	}
}

func TestPartsAreChecked(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	a, b := makeContent("disk", api.FileDisk, "a"), makeContent("disk", api.FileDisk, "b")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", a))
	if err != nil {
		t.Fatal(err)
	}
	put := func(off int64, raw []byte) error {
		return r.PutPart(t.Context(), s.Session, "disk", off, bytes.NewReader(raw))
	}
	whole := new(bytes.Buffer)
	_, _ = whole.ReadFrom(a.part())
	flipped := bytes.Clone(whole.Bytes())
	flipped[len(flipped)-3] ^= 1
	for name, c := range map[string]struct {
		off int64
		raw []byte
	}{
		"flipped": {0, flipped}, "cut": {0, whole.Bytes()[:whole.Len()-1]}, "cut header": {0, whole.Bytes()[:20]},
		"empty": {0, nil}, "behind the end": {a.spec.Size, whole.Bytes()}, "negative": {-1, whole.Bytes()},
	} {
		if err := put(c.off, c.raw); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	index := func(c content, root string) error {
		return r.PutIndex(t.Context(), s.Session, "disk", root, bytes.NewReader(c.index.Encoded()))
	}
	if err := index(a, a.root()); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("index before its parts: %v", err)
	}
	if err := put(0, whole.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := index(b, b.root()); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("index of other frames: %v", err)
	}
	if err := index(a, b.root()); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("index under another root: %v", err)
	}
	if _, err := r.CommitPush(t.Context(), s.Session,
		api.PushCommit{Roots: map[string]string{"disk": a.root()}}); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("commit without an index: %v", err)
	}
	if tags(r, idA) != "none" {
		t.Fatal("something was published")
	}
	if err := r.AbortPush(t.Context(), s.Session); err != nil {
		t.Fatal(err)
	}
	if err := put(0, whole.Bytes()); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("part after the abort: %v", err)
	}
}
