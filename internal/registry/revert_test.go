package registry

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// pushKnown pushes an unchanged disk whose chain ID the client knows. sent reports whether the registry
// requested the data.
func pushKnown(t *testing.T, r *Registry, id, tag string, c content) (sent bool, err error) {
	t.Helper()
	req := request(id, tag, c)
	req.Files[0].Root, req.Files[0].Parent = c.root(), ""
	s, err := r.Negotiate(t.Context(), req)
	must(t, err)
	if s.Files[0].State != api.PushExists {
		return true, nil
	}
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: map[string]string{"disk": c.root()}})
	return false, err
}

// TestRevertedDiskIsPushedAgain: the disk of a reverted version is found by its chain ID, across as many tags
// as were reverted and while its layers are in the trash. It is requested again when one of them was removed
// permanently.
func TestRevertedDiskIsPushedAgain(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	g := newGrown(11)
	_, contents := pushTags(t, r, idA, g, 3)
	before, err := r.TemplateDetail(idA)
	must(t, err)
	last, disk := contents[3], slices.Clone(g.data)
	revertTo := func(number int) {
		t.Helper()
		must(t, r.Revert(t.Context(), VersionRef{ID: idA, Number: &number}))
	}
	collect := func(times int) {
		t.Helper()
		for range times {
			clock.add(2 * time.Hour)
			must(t, r.CollectGarbage(t.Context()))
		}
	}
	for name, c := range map[string]struct {
		number  int
		collect int // rounds of 2 hours
	}{
		"its tag": {3, 0}, "its tag and the one before": {2, 0}, "in the trash": {2, 2}, "all tags": {0, 2},
	} {
		revertTo(c.number)
		collect(c.collect)
		sent, err := pushKnown(t, r, idA, "again", last)
		if sent || err != nil {
			t.Fatalf("%s: sent %v, %v", name, sent, err)
		}
		d, err := r.TemplateDetail(idA)
		must(t, err)
		v := d.Versions[len(d.Versions)-1]
		if !bytes.Equal(assemble(t, r, idA, "again"), disk) || v.ContentID != before.Versions[3].ContentID {
			t.Fatalf("%s: another disk: %+v", name, v)
		}
		mustBeClean(t, r)
		revertTo(0)
		for i, c := range contents {
			mustPush(t, r, request(idA, before.Versions[i].Tag, c), c)
		}
	}
	revertTo(2)
	collect(30)
	if sent, err := pushKnown(t, r, idA, "gone", last); !sent || err != nil {
		t.Fatalf("a disk whose layers are gone: sent %v, %v", sent, err)
	}
	must(t, verifyAll(r))
}

// TestKnownDiskCostsNothing: no space is reserved for a disk that is already stored, also if its chain was
// squashed.
func TestKnownDiskCostsNothing(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	g := newGrown(13)
	_, contents := pushTags(t, r, idA, g, maxChainLength)
	if n, err := r.SquashChains(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	last := contents[maxChainLength]
	req := request(idA, "same", last)
	req.Files[0].Root, req.Files[0].Parent, req.Files[0].Data = last.root(), "", last.spec.Size
	chains, err := r.resolveChains(t.Context(), req, nil)
	must(t, err)
	if n := expectedBytes(req.Files[0], chains[0]); n != 0 {
		t.Errorf("%d bytes are expected", n)
	}
	_, err = r.Negotiate(t.Context(), req)
	must(t, err)
	if n := r.reservedBytes(); n != 0 {
		t.Errorf("%d bytes are reserved", n)
	}
	unknown := request(idA, "other", last)
	unknown.Files[0].Parent, unknown.Files[0].Root, unknown.Files[0].Data = "", contents[3].root()[:63]+"x",
		last.spec.Size
	if n := expectedBytes(unknown.Files[0], nil); n < last.spec.Size {
		t.Errorf("%d bytes are expected of a disk that is not here", n)
	}
}

// TestDiskThatRestsOnAnother: an existing layer is not the announced disk: its client receives the error that
// makes it send the disk as a whole.
func TestDiskThatRestsOnAnother(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	g := newGrown(12)
	_, contents := pushTags(t, r, idA, g, 1)
	req := request(idA, "x", contents[1])
	req.Files[0].Parent = ""
	s, err := r.Negotiate(t.Context(), req)
	must(t, err)
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: map[string]string{"disk": contents[1].root()}})
	if farm.CodeOf(err) != farm.CodeNoParent {
		t.Error(err)
	}
}
