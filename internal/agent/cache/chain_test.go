package cache_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/transfer"
)

// overlay writes random blocks of a disk into an overlay, and into the expected disk.
func overlay(t *testing.T, disk []byte, seed uint64, writes int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "delta")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, content := rand.New(rand.NewPCG(seed, 2)), rand.NewChaCha8([32]byte{byte(seed)})
	kinds := map[int64]qcow2.Kind{}
	for range writes {
		at := r.Int64N(int64(len(disk))/qcow2.SubclusterBytes) * qcow2.SubclusterBytes
		kinds[at] = qcow2.Kind(1 + r.IntN(2))
		block := disk[at : at+qcow2.SubclusterBytes]
		if clear(block); kinds[at] == qcow2.Data {
			_, _ = content.Read(block)
		}
	}
	b := qcow2.NewBuilder(int64(len(disk)))
	for at, kind := range kinds {
		if err := b.Add(qcow2.Range{Off: at, Len: qcow2.SubclusterBytes, Kind: kind}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := b.Layout()
	if err == nil {
		err = l.CopyData(t.Context(), f, bytes.NewReader(disk))
	}
	if err == nil {
		err = l.Finish(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// pushDisk publishes a disk; parent is the chain ID of its parent, "" for none.
func (s *shelf) pushDisk(tag string, d diskfile.Disk, parent string) (cache.Ref, string) {
	s.t.Helper()
	f := transfer.PushFile{Name: "disk.img", Kind: api.FileDisk, Disk: &d}
	if parent != "" {
		f.Parent = &transfer.PushParent{ChainID: parent, FileCount: len(d.Overlays)}
	}
	roots := map[string]string{}
	got, err := s.client.Push(s.t.Context(), transfer.PushOptions{
		Request: api.PushRequest{
			ID: s.id, Name: "debian", Tag: tag, Config: []byte(`{"hard_drives":[{"file":"disk.img","format":"raw"}]}`),
		},
		Files: []transfer.PushFile{f}, LayerDigests: roots,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.id = got.ID
	return cache.Ref{
		Registry: s.server.URL, TemplateID: got.ID, Name: "debian", Tag: tag, Version: got.Number,
		ContentID: got.ContentID,
	}, roots["disk.img"]
}

// diskOf reads what a guest would see of a cached version's disk.
func diskOf(t *testing.T, c *cache.Cache, ref cache.Ref) (diskfile.Disk, []byte) {
	t.Helper()
	v, err := c.Version(ref.ContentID)
	if err != nil {
		t.Fatal(err)
	}
	d := v.Disks["disk.img"]
	open, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	b, err := io.ReadAll(io.NewSectionReader(open, 0, open.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return d, b
}

// TestChainOfARegistry: of a chain of versions, a node pulls what it does not have, reads each as
// it was pushed, uses space for the changes alone, and needs no registry for cached versions; a
// node that begins with the last version gets it as one disk.
func TestChainOfARegistry(t *testing.T) {
	s := newShelf(t, 0)
	base := noise(t, "disk.img", 1, 8)
	disk, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	wants := [][]byte{bytes.Clone(disk)}
	var refs []cache.Ref
	at := diskfile.Disk{Path: base, Format: "raw"}
	ref, tip := s.pushDisk("v1", at, "")
	refs = append(refs, ref)
	for i, tag := range []string{"v2", "v3", "v4"} {
		at.Overlays = append(at.Overlays, overlay(t, disk, uint64(i), 20))
		ref, tip = s.pushDisk(tag, at, tip)
		wants, refs = append(wants, bytes.Clone(disk)), append(refs, ref)
	}
	for i, ref := range refs {
		if i == 2 {
			continue // the fourth is made from the second
		}
		before := s.cache.UsedBytes()
		s.fetch(ref)
		d, got := diskOf(t, s.cache, ref)
		if !bytes.Equal(got, wants[i]) {
			t.Errorf("%s is another disk", ref.Tag)
		}
		if took := s.cache.UsedBytes() - before; i > 0 && len(d.Overlays) > 0 && took > mib {
			t.Errorf("%s took %d bytes", ref.Tag, took)
		}
	}
	s.server.Close()
	again := open(t, cache.Options{Dir: s.dir, Source: cache.NewRegistry(transfer.Options{}, nil)})
	for _, i := range []int{0, 1, 3} {
		if err := again.Fetch(t.Context(), refs[i], nil); err != nil {
			t.Errorf("with the registry away: %v", err)
		}
		if _, got := diskOf(t, again, refs[i]); !bytes.Equal(got, wants[i]) {
			t.Errorf("%s is another disk after a restart", refs[i].Tag)
		}
	}
}

// TestAdoptedChain: a version that is based on an adopted one is pulled as its changes; a node
// without cached versions gets one flat disk, and reports its progress from 0 to 1.
func TestAdoptedChain(t *testing.T) {
	s := newShelf(t, 0)
	base := noise(t, "disk.img", 1, 8)
	disk, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	first, tip := s.pushDisk("v1", diskfile.Disk{Path: base, Format: "raw"}, "")
	s.fetch(first)
	deltas := []string{overlay(t, disk, 1, 20)}
	second, tip := s.pushDisk("v2", diskfile.Disk{Path: base, Format: "raw", Overlays: deltas}, tip)
	err = s.cache.AddLocal(t.Context(), cache.LocalVersion{
		Ref: second, Config: []byte("{}"), Paths: map[string]string{"disk.img": deltas[0]},
		Files: map[string]cache.File{
			"disk.img": {
				ChainID: tip, Format: "raw", Base: &cache.BaseFile{ContentID: first.ContentID, FileName: "disk.img"},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	deltas = append(deltas, overlay(t, disk, 2, 20))
	third, _ := s.pushDisk("v3", diskfile.Disk{Path: base, Format: "raw", Overlays: deltas}, tip)
	s.fetch(third)
	if d, got := diskOf(t, s.cache, third); !bytes.Equal(got, disk) || len(d.Overlays) != 2 ||
		d.Path != s.file(first, "disk.img") {
		t.Errorf("the third version is read from %+v", d)
	}

	source := cache.NewRegistry(transfer.Options{}, nil)
	defer source.Close()
	other := open(t, cache.Options{Dir: t.TempDir(), Source: source, Reserve: bytesize.DiskReserve{Bytes: mib}})
	var least, most atomic.Int64
	least.Store(1000)
	err = other.Fetch(t.Context(), third, func(at float64) {
		least.Store(min(least.Load(), int64(1000*at)))
		most.Store(max(most.Load(), int64(1000*at)))
	})
	if err != nil || most.Load() != 1000 || least.Load() < 0 {
		t.Errorf("%v, progress from %d to %d of 1000", err, least.Load(), most.Load())
	}
	if d, got := diskOf(t, other, third); !bytes.Equal(got, disk) || len(d.Overlays) != 0 || d.Format != "raw" {
		t.Errorf("from nothing, the third version is read from %+v", d)
	}
}

// TestChangesNeedLittleSpace: the part of a chain that a node already has needs no more space, and
// is not evicted for the rest.
func TestChangesNeedLittleSpace(t *testing.T) {
	s := newShelf(t, 14*mib) // of which one is reserved
	base := noise(t, "disk.img", 1, 8)
	disk, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	first, tip := s.pushDisk("v1", diskfile.Disk{Path: base, Format: "raw"}, "")
	deltas := []string{overlay(t, disk, 1, 20)}
	second, _ := s.pushDisk("v2", diskfile.Disk{Path: base, Format: "raw", Overlays: deltas}, tip)
	s.id = ""
	other := s.push("other", map[string]string{}, noise(t, "other.img", 3, 4))
	large := s.push("large", map[string]string{}, noise(t, "large.img", 4, 4))
	s.fetch(first)
	s.fetch(other)
	s.fetch(second)
	if !s.cache.Has(first.ContentID) || !s.cache.Has(other.ContentID) {
		t.Errorf("left are %+v", s.cache.List())
	}
	s.cache.Pin(second.ContentID, "vm")
	s.fetch(large)
	if !s.cache.Has(first.ContentID) || s.cache.Has(other.ContentID) {
		t.Errorf("left are %+v", s.cache.List())
	}
	if _, got := diskOf(t, s.cache, second); !bytes.Equal(got, disk) {
		t.Error("the version that is held is another disk")
	}
}
