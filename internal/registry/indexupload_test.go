package registry

import (
	"bytes"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

// TestIndexInChunks: chunks come in order, each may be sent again, and the complete index is checked like one
// sent at a time.
func TestIndexInChunks(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	c := makeContent("disk", api.FileDisk, "text")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", c))
	must(t, err)
	must(t, r.PutPart(t.Context(), s.Session, "disk", 0, c.part()))
	raw := c.index.Encoded()
	put := func(off, end int, of int64) error {
		return r.PutIndexChunk(t.Context(), s.Session, "disk",
			IndexChunk{Digest: c.root(), Off: int64(off), TotalBytes: of},
			bytes.NewReader(raw[off:end]))
	}
	whole, half := int64(len(raw)), len(raw)/2
	for name, err := range map[string]error{
		"too long":         put(0, half, blob.MaxIndexSize+1),
		"behind the whole": put(half, half, int64(half)),
	} {
		if farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := put(half, len(raw), whole); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("the second before the first: %v", err)
	}
	must(t, put(0, half, whole))
	must(t, put(0, half, whole))
	must(t, put(half, len(raw), whole))
	must(t, put(half, len(raw), whole))
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: map[string]string{"disk": c.root()}})
	must(t, err)
	mustBeClean(t, r)

	// Chunks of two indexes do not make an index.
	other := makeContent("disk", api.FileDisk, "else")
	s, err = r.Negotiate(t.Context(), request(idA, "v2", other))
	must(t, err)
	must(t, r.PutPart(t.Context(), s.Session, "disk", 0, other.part()))
	must(t, put(0, half, whole))
	if err := put(half, len(raw), whole); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("an index of other parts: %v", err)
	}
	raw[half] ^= 1
	defer func() { raw[half] ^= 1 }()
	if err := put(half, len(raw), whole); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("a damaged one: %v", err)
	}
}

// TestKnownContent: a disk named by a chain ID becomes that chain, also after the chain was squashed, and the
// version has the same content.
func TestKnownContent(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	g := newGrown(3)
	_, contents := pushTags(t, r, idA, g, 2)
	d, err := r.TemplateDetail(idA)
	must(t, err)
	last := d.Versions[2]
	known := request(idA, "same", contents[2])
	known.Files[0].Root, known.Files[0].Parent = contents[2].root(), ""
	take := func(req api.PushRequest) (api.PushResult, error) {
		s, err := r.Negotiate(t.Context(), req)
		if err != nil {
			return api.PushResult{}, err
		}
		if s.Files[0].State != api.PushExists {
			t.Errorf("the disk is %s", s.Files[0].State)
		}
		return r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: map[string]string{"disk": req.Files[0].Root}})
	}
	same, err := take(known)
	if err != nil || same.ContentID != last.ContentID || !bytes.Equal(assemble(t, r, idA, "same"), g.data) {
		t.Fatalf("%+v, %v", same, err)
	}
	known.Tag, known.Files[0].Size = "another size", 1
	if _, err := take(known); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("another size: %v", err)
	}
	mustBeClean(t, r)
	must(t, verifyAll(r))
}
