package registry

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

const chainBlocks = 48

// grown is a disk that changes from tag to tag.
type grown struct {
	rng  *rand.Rand
	data []byte
	tip  blob.Digest
}

func newGrown(seed uint64) *grown {
	g := &grown{rng: rand.New(rand.NewPCG(seed, 7)), data: make([]byte, chainBlocks*blob.BlockSize)}
	for range chainBlocks / 2 {
		g.write()
	}
	return g
}

// write fills a block, sometimes with zeros.
func (g *grown) write() {
	block := g.data[g.rng.IntN(chainBlocks)*blob.BlockSize:][:blob.BlockSize]
	fill := byte(g.rng.IntN(256))
	if g.rng.IntN(4) == 0 {
		fill = 0
	}
	for i := range block {
		block[i] = fill ^ byte(i*int(fill)>>8)
	}
}

// base is the disk as it is, against zeros.
func (g *grown) base(t testing.TB) content {
	return g.encode(t, func(o blob.EncodeOptions, sink blob.FrameSink) (*blob.Index, error) {
		return blob.Encode(context.Background(), source{bytes.NewReader(slices.Clone(g.data))}, o, sink)
	})
}

// next changes the disk and returns the changes.
func (g *grown) next(t testing.TB) content {
	before := slices.Clone(g.data)
	for range 3 {
		g.write()
	}
	g.data[g.rng.IntN(len(g.data))] ^= 0xff // so that something did change
	return g.encode(t, func(o blob.EncodeOptions, sink blob.FrameSink) (*blob.Index, error) {
		o.Parent = g.tip
		changes := blob.Compare(source{bytes.NewReader(slices.Clone(g.data))}, source{bytes.NewReader(before)}, o.Size)
		return blob.EncodeChanges(context.Background(), changes, o, sink)
	})
}

func (g *grown) encode(t testing.TB, do func(blob.EncodeOptions, blob.FrameSink) (*blob.Index, error)) content {
	c := content{spec: api.PushFile{Name: "disk", Kind: api.FileDisk, Size: int64(len(g.data))}}
	x, err := do(blob.EncodeOptions{
		Kind: blob.KindDisk, Size: c.spec.Size, Workers: 1,
	}, func(f blob.Frame, _ int64, stored []byte) error {
		c.frames = append(c.frames, blob.PartFrame{StoredSize: f.StoredSize, Sum: f.Sum})
		c.stored = append(c.stored, stored...)
		return nil
	})
	if err != nil {
		panic(err)
	}
	c.index, c.spec.Parent = x, parentString(x)
	g.tip = x.ChainID()
	return c
}

// assemble puts together the disk of a version out of the layers that its manifest names.
func assemble(t testing.TB, r *Registry, id, tag string) []byte {
	t.Helper()
	m, err := r.Manifest(context.Background(), VersionRef{ID: id, Tag: tag})
	if err != nil {
		t.Fatal(err)
	}
	return assembleManifest(t, r, m)
}

// assembleManifest returns the disk of a manifest, whose lease keeps its layers.
func assembleManifest(t testing.TB, r *Registry, m api.PullManifest) []byte {
	t.Helper()
	var layers []*blob.Layer
	for _, l := range m.Files[0].Layers {
		f, err := r.OpenBlob(context.Background(), l.Root)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		root, _ := blob.ParseDigest(l.Root)
		layer, err := blob.OpenLayer(f, l.Size, root)
		if err != nil {
			t.Fatal(err)
		}
		if want := layer.Index().ChainID().String(); (l.Tip == "") != (want == l.Root) || l.Tip != "" && l.Tip != want {
			t.Fatalf("tip of %s is given as %q", l.Root, l.Tip)
		}
		layers = append(layers, layer)
	}
	chain, err := blob.OpenChain(layers...)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, chain.Size())
	if n, err := chain.ReadAt(out, 0); n < len(out) {
		t.Fatal(err)
	}
	return out
}

func mustBeClean(t testing.TB, r *Registry) {
	t.Helper()
	report, err := r.Check(context.Background(), CheckOptions{Deep: true})
	if err != nil || len(report.Findings) > 0 {
		t.Fatalf("%+v, %v", report.Findings, err)
	}
}

// pushTags pushes a base and n tags on it, and returns the contents of each disk.
func pushTags(t testing.TB, r *Registry, id string, g *grown, n int) (disks [][]byte, contents []content) {
	t.Helper()
	for i := range n + 1 {
		step := g.base
		if i > 0 {
			step = g.next
		}
		c := step(t)
		mustPush(t, r, request(id, fmt.Sprint("v", i), c), c)
		disks, contents = append(disks, slices.Clone(g.data)), append(contents, c)
	}
	return disks, contents
}

func TestChains(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	g := newGrown(1)
	disks, contents := pushTags(t, r, idA, g, 4)
	for i, want := range disks {
		if !bytes.Equal(assemble(t, r, idA, fmt.Sprint("v", i)), want) {
			t.Fatalf("v%d is another disk", i)
		}
	}
	d, _ := r.TemplateDetail(idA)
	var names []string
	var size int64
	for _, c := range contents {
		names, size = append(names, c.root()+".ank"), size+c.index.FileSize()
	}
	if v := d.Versions[4]; !slices.Equal(v.Images, names) || v.Size != size || d.Size != size {
		t.Fatalf("%+v", d)
	}
	// The disk of another template rests on the same layers, which outlive the first one.
	on := g.next(t)
	mustPush(t, r, request(idB, "b1", on), on)
	must(t, r.Delete(t.Context(), idA))
	for range 4 {
		clock.add(26 * time.Hour)
		must(t, r.CollectGarbage(t.Context()))
	}
	if !bytes.Equal(assemble(t, r, idB, "b1"), g.data) {
		t.Fatal("another disk")
	}
	mustBeClean(t, r)
	must(t, verifyAll(r))
}

// TestContentOfAChain: the id of a version depends on its disk's tip and not on the layers.
func TestContentOfAChain(t *testing.T) {
	one := []layout.File{{Name: "disk", Kind: "disk", Layers: []layout.Layer{{Digest: "a"}, {Digest: "b"}}}}
	merged := []layout.File{{Name: "disk", Kind: "disk", Layers: []layout.Layer{{Digest: "c", Squashes: "b"}}}}
	other := []layout.File{{Name: "disk", Kind: "disk", Layers: []layout.Layer{{Digest: "a"}}}}
	if computeContentID(nil, one, nil) != computeContentID(nil, merged, nil) ||
		computeContentID(nil, one, nil) == computeContentID(nil, other, nil) {
		t.Fatal("content ids are wrong")
	}
}

func TestParentsAreChecked(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	g := newGrown(2)
	v0 := g.base(t)
	mustPush(t, r, request(idA, "v0", v0), v0)
	v1 := g.next(t)
	v2 := g.next(t) // rests on v1, which is not pushed
	negotiate := func(change func(*api.PushFile)) error {
		req := request(idA, "x", v1)
		change(&req.Files[0])
		_, err := r.Negotiate(t.Context(), req)
		return err
	}
	for name, c := range map[string]struct {
		change func(*api.PushFile)
		code   farm.Code
	}{
		"known":         {func(*api.PushFile) {}, ""},
		"unknown":       {func(f *api.PushFile) { f.Parent = v1.root() }, farm.CodeNoParent},
		"no name":       {func(f *api.PushFile) { f.Parent = "x" }, farm.CodeInvalid},
		"zeros":         {func(f *api.PushFile) { f.Parent = blob.Digest{}.String() }, farm.CodeInvalid},
		"of a state":    {func(f *api.PushFile) { f.Kind = api.FileState }, farm.CodeInvalid},
		"of a manifest": {func(f *api.PushFile) { f.Parent = v0.root() }, ""},
	} {
		if err := negotiate(c.change); farm.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := negotiate(func(f *api.PushFile) { f.Parent = v1.root() })
	if want := "Parent layer " + v1.root() +
		" of disk not found in the registry: push the complete disk"; err.Error() != want {
		t.Errorf("%v", err)
	}
	// An index whose parent differs from the announced one.
	wrong := v2
	wrong.spec.Parent = v0.root()
	if _, err := push(r, request(idA, "x", wrong), wrong); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("another parent in the index: %v", err)
	}
	wrong = v1
	wrong.spec.Parent = ""
	if _, err := push(r, request(idA, "y", wrong), wrong); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("a parent that was not announced: %v", err)
	}
	// A damaged parent cannot be rested on.
	r.markDamaged(v0.index.Digest(), "is damaged")
	if err := negotiate(func(*api.PushFile) {}); farm.CodeOf(err) != farm.CodeNoParent {
		t.Errorf("damaged parent: %v", err)
	}
	if tags(r, idA) != "v0" {
		t.Fatal(tags(r, idA))
	}
}

// TestParentRevertedDuringAPush: the layers that a push rests on stay even if their version is reverted, for
// days and across a restart.
func TestParentRevertedDuringAPush(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	clock.now = time.Now() // that of the files, by which a restart decides which pushes were idle
	o := Options{Base: base, Now: clock.Now, IdlePushTimeout: 1000 * time.Hour, EmptyPushTimeout: 1000 * time.Hour}
	r, err := Open(t.Context(), o)
	must(t, err)
	g := newGrown(3)
	pushTags(t, r, idA, g, 2)
	c := g.next(t)
	req := request(idA, "v3", c)
	req.ResumeKey = "key"
	s, err := r.Negotiate(t.Context(), req)
	must(t, err)
	number := 0
	must(t, r.Revert(t.Context(), VersionRef{ID: idA, Number: &number}))
	for range 4 {
		clock.add(26 * time.Hour)
		must(t, r.CollectGarbage(t.Context()))
	}
	must(t, r.Close())
	r, err = Open(t.Context(), o)
	must(t, err)
	defer r.Close()
	for range 4 { // before another request for the push
		clock.add(26 * time.Hour)
		must(t, r.CollectGarbage(t.Context()))
	}
	roots, err := send(r, s, []content{c})
	must(t, err)
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots})
	must(t, err)
	if tags(r, idA) != "v3" || !bytes.Equal(assemble(t, r, idA, "v3"), g.data) {
		t.Fatal("another disk")
	}
	mustBeClean(t, r)
}

// TestGCKeepsWhatPushesNeed: a requested garbage collection neither counts nor removes the layers that an open
// push rests on.
func TestGCKeepsWhatPushesNeed(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	g := newGrown(5)
	pushTags(t, r, idA, g, 2)
	c := g.next(t)
	s, err := r.Negotiate(t.Context(), request(idA, "v3", c))
	must(t, err)
	number := 0
	must(t, r.Revert(t.Context(), VersionRef{ID: idA, Number: &number}))
	for _, o := range []GCOptions{{DryRun: true}, {DryRun: true, EmptyTrash: true}, {EmptyTrash: true}} {
		got, err := r.GC(t.Context(), o)
		if err != nil || got.Layers != 0 || got.Purged != 0 {
			t.Fatalf("%+v: %+v, %v", o, got, err)
		}
	}
	roots, err := send(r, s, []content{c})
	must(t, err)
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots})
	must(t, err)
	if !bytes.Equal(assemble(t, r, idA, "v3"), g.data) {
		t.Fatal("another disk")
	}
}

// TestSquash: a long chain becomes one layer, and no version, content id or running push notices.
func TestSquash(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	g := newGrown(4)
	disks, _ := pushTags(t, r, idA, g, maxChainLength-1)
	if n, err := r.SquashChains(t.Context()); n != 0 || err != nil {
		t.Fatalf("%d chains of %d layers put together, %v", n, maxChainLength, err)
	}
	c := g.next(t)
	mustPush(t, r, request(idA, "v16", c), c)
	mustPush(t, r, request(idA, "v17", c), c) // the same disk
	disks = append(disks, slices.Clone(g.data), slices.Clone(g.data))
	before, _ := r.TemplateDetail(idA)
	late := g.next(t) // a push that begins before it and ends after it
	s, err := r.Negotiate(t.Context(), request(idA, "v18", late))
	must(t, err)
	roots, err := send(r, s, []content{late})
	must(t, err)
	disks = append(disks, slices.Clone(g.data))

	if n, err := r.SquashChains(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots})
	must(t, err)
	on := g.next(t) // and one on the tip, which is no longer a separate layer
	mustPush(t, r, request(idA, "v19", on), on)
	disks = append(disks, slices.Clone(g.data))
	for range 2 {
		after, _ := r.TemplateDetail(idA)
		for i := range before.Versions {
			if after.Versions[i].ContentID != before.Versions[i].ContentID || after.LastPush != before.LastPush {
				t.Fatalf("v%d is another version", i)
			}
		}
		if n := []int{
			len(after.Versions[15].Images), len(after.Versions[16].Images),
			len(after.Versions[17].Images),
		}; !slices.Equal(n, []int{16, 1, 1}) {
			t.Fatalf("chains have %v layers", n)
		}
		for i, want := range disks {
			if !bytes.Equal(assemble(t, r, idA, fmt.Sprint("v", i)), want) {
				t.Fatalf("v%d is another disk", i)
			}
		}
		must(t, verifyAll(r)) // with the text files
		mustBeClean(t, r)
		if left, _ := os.ReadDir(filepath.Join(base, layout.UploadDir)); len(left) > 22 ||
			slices.ContainsFunc(left, func(e os.DirEntry) bool { return isSquashUpload(e.Name()) }) {
			t.Fatalf("%v left", left)
		}
		must(t, r.Close())
		r = open(t, base, clock)
	}
	number := 17
	must(t, r.Revert(t.Context(), VersionRef{ID: idA, Number: &number}))
	if n, err := r.SquashChains(t.Context()); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
}

// TestDeadLayersAreSquashed: a short chain of which little is seen becomes one layer, too.
func TestDeadLayersAreSquashed(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	g := newGrown(5)
	fill := func() {
		for i := range g.data {
			g.data[i] = byte(g.rng.Uint32())
		}
	}
	fill()
	v0 := g.base(t)
	mustPush(t, r, request(idA, "v0", v0), v0)
	before := slices.Clone(g.data)
	fill()
	v1 := g.encode(t, func(o blob.EncodeOptions, sink blob.FrameSink) (*blob.Index, error) {
		o.Parent = g.tip
		changes := blob.Compare(source{bytes.NewReader(slices.Clone(g.data))}, source{bytes.NewReader(before)}, o.Size)
		return blob.EncodeChanges(context.Background(), changes, o, sink)
	})
	mustPush(t, r, request(idA, "v1", v1), v1)
	if n, err := r.SquashChains(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if !bytes.Equal(assemble(t, r, idA, "v0"), before) || !bytes.Equal(assemble(t, r, idA, "v1"), g.data) {
		t.Fatal("another disk")
	}
	// Clients may not push a squashed layer.
	d, _ := r.TemplateDetail(idA)
	req := request(idB, "x", v1)
	req.Files[0].Parent, req.Files[0].Root = "", strings.TrimSuffix(d.Versions[1].Images[0], ".ank")
	s, err := r.Negotiate(t.Context(), req)
	must(t, err)
	if _, err := r.CommitPush(t.Context(), s.Session,
		api.PushCommit{Roots: map[string]string{"disk": req.Files[0].Root}}); farm.CodeOf(err) != farm.CodeRefused {
		t.Fatalf("a layer that stands for others: %v", err)
	}
}
