package transfer_test

import (
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/qcow2/qcow2test"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/transfer"
)

// pushDisk pushes a disk as disk.image and returns the name of its layer.
func pushDisk(t *testing.T, c *transfer.Client, tag string, d diskfile.Disk, parent *transfer.PushParent) string {
	t.Helper()
	o := pushOptions(tag)
	o.LayerDigests = map[string]string{}
	o.Files = []transfer.PushFile{{Name: "disk.img", Kind: api.FileDisk, Disk: &d, Parent: parent}}
	mustPush(t, c, o)
	return o.LayerDigests["disk.img"]
}

// pullDisk pulls a version onto local content and returns its disk.
func pullDisk(
	t *testing.T, c *transfer.Client, tag string, have map[string]diskfile.Disk,
) (diskfile.Disk, transfer.PullResult) {
	t.Helper()
	o := transfer.PullOptions{
		Ref: transfer.VersionRef{ID: templateID, Tag: tag}, Dir: t.TempDir(), LocalContent: have,
		AllowOverlays: true,
	}
	result, err := c.Pull(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.Dir, "disk.img")
	if b := result.Files[0]; b.Form == transfer.FormOverlay {
		below := have[b.ParentChainID]
		below.Overlays = append(slices.Clip(below.Overlays), path)
		return below, result
	}
	return diskfile.Disk{Path: path}, result
}

func writeFile(t *testing.T, name string, data []byte) diskfile.Disk {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return diskfile.Disk{Path: path}
}

// counted counts the bytes of parts and indexes that are sent.
func counted(s *server) *atomic.Int64 {
	var sent atomic.Int64
	count := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.Method == http.MethodPut && isBulk(r) {
			sent.Add(r.ContentLength)
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&count)
	return &sent
}

// TestPushOfWhatChanged: a later tag is sent as its changes, found by comparison or read from an overlay. A
// chain of them yields the right disk from every starting version.
func TestPushOfWhatChanged(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	s := serve(t, t.TempDir())
	c := s.client(t)
	sent := counted(s)
	first := make([]byte, 14<<20)
	noise(rnd, first[:12<<20])
	base := writeFile(t, "base", first)
	tip1 := pushDisk(t, c, "v1", base, nil)
	second := grow(rnd, first, len(first))
	sent.Store(0)
	tip2 := pushDisk(t, c, "v2", writeFile(t, "second", second), &transfer.PushParent{ChainID: tip1, Disk: &base})
	if sent.Load() > 7<<20 {
		t.Errorf("%d bytes were sent for the second tag", sent.Load())
	}

	// A third tag is made of an overlay on the second, as a save is.
	d2, result := pullDisk(t, c, "v2", map[string]diskfile.Disk{tip1: base})
	mustRead(t, d2, second)
	if result.TransferredBytes > 7<<20 {
		t.Errorf("%d bytes were moved for the second tag", result.TransferredBytes)
	}
	third := grow(rnd, second, 16<<20)
	d3 := d2
	d3.Overlays = append(slices.Clip(d3.Overlays), qcow2test.Image(t, second, third))
	sent.Store(0)
	tip3 := pushDisk(t, c, "v3", d3, &transfer.PushParent{ChainID: tip2, FileCount: 1 + len(d2.Overlays)})
	if sent.Load() > 7<<20 {
		t.Errorf("%d bytes were sent for the third tag", sent.Load())
	}
	for name, have := range map[string]map[string]diskfile.Disk{
		"nothing": nil, "the first": {tip1: base}, "the second": {tip2: d2}, "both": {tip1: base, tip2: d2},
		"all": {tip3: d3},
	} {
		d, result := pullDisk(t, c, "v3", have)
		if result.Files[0].ChainID != tip3 {
			t.Errorf("%s is here: %+v", name, result.Files[0])
		}
		if result.Files[0].Form == transfer.FormLinked {
			d = d3
		}
		mustRead(t, d, third)
	}
	d, _ := pullDisk(t, c, "v1", map[string]diskfile.Disk{tip3: d3})
	mustRead(t, d, first)
}

// TestUnknownParent: a registry without the parent of a disk receives the whole disk.
func TestUnknownParent(t *testing.T) {
	rnd := rand.New(rand.NewPCG(10, 10))
	s := serve(t, t.TempDir())
	c := s.client(t)
	first := grow(rnd, nil, 4<<20)
	second := grow(rnd, first, 4<<20)
	base := writeFile(t, "base", first)
	other := serve(t, t.TempDir())
	tip := pushDisk(t, other.client(t), "v1", base, nil)
	pushDisk(t, c, "v2", writeFile(t, "second", second), &transfer.PushParent{ChainID: tip, Disk: &base})
	d, result := pullDisk(t, c, "v2", nil)
	if n := len(result.Manifest.Files[0].Layers); n != 1 {
		t.Errorf("the disk has %d layers", n)
	}
	mustRead(t, d, second)
}

// TestPushOfQCOW2: the registry receives the content that a guest sees of an image, not the image's bytes.
func TestPushOfQCOW2(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 11))
	c := serve(t, t.TempDir()).client(t)
	disk := grow(rnd, nil, 6<<20)
	pushDisk(t, c, "v1", diskfile.Disk{Path: qcow2test.Image(t, nil, disk), Format: "qcow2"}, nil)
	d, result := pullDisk(t, c, "v1", nil)
	if f := result.Manifest.Files[0]; f.Format != "raw" || f.Size != int64(len(disk)) {
		t.Errorf("%+v", f)
	}
	mustRead(t, d, disk)
}

// TestDisksThatCannotBePushed: a file that is not a disk is refused before anything is sent.
func TestDisksThatCannotBePushed(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	raw := writeFile(t, "raw", make([]byte, 8192))
	for name, f := range map[string]transfer.PushFile{
		"no image":       {Disk: &diskfile.Disk{Path: raw.Path, Format: "qcow2"}},
		"unknown format": {Disk: &diskfile.Disk{Path: raw.Path, Format: "vmdk"}},
		"gone":           {Disk: &diskfile.Disk{Path: raw.Path + "x"}},
		"a directory":    {Disk: &diskfile.Disk{Path: filepath.Dir(raw.Path)}},
		"no overlays":    {Disk: &raw, Parent: &transfer.PushParent{ChainID: tipless, FileCount: 1}},
		"parent is gone": {
			Disk: &raw, Parent: &transfer.PushParent{ChainID: tipless, Disk: &diskfile.Disk{Path: "gone"}},
		},
		"no tip":          {Disk: &raw, Parent: &transfer.PushParent{ChainID: "x", Disk: &raw}},
		"parent, no disk": {Path: raw.Path, Parent: &transfer.PushParent{ChainID: tipless, Disk: &raw}},
	} {
		f.Name, f.Kind = "disk.img", api.FileDisk
		o := pushOptions("v1")
		o.Files = []transfer.PushFile{f}
		if _, err := c.Push(t.Context(), o); err == nil {
			t.Errorf("%s: pushed", name)
		}
	}
}

// tipless names a content that does not exist.
const tipless = "0101010101010101010101010101010101010101010101010101010101010101"

// TestRevertedDiskIsPushedAgain: an unchanged disk costs nothing after its version was reverted, and is sent as
// a whole when its parent was removed permanently.
func TestRevertedDiskIsPushedAgain(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 13))
	s := serve(t, t.TempDir())
	c := s.client(t)
	sent := counted(s)
	first := grow(rnd, nil, 4<<20)
	second := grow(rnd, first, 4<<20)
	base, disk := writeFile(t, "base", first), writeFile(t, "second", second)
	tip1 := pushDisk(t, c, "v1", base, nil)
	tip2 := pushDisk(t, c, "v2", disk, &transfer.PushParent{ChainID: tip1, Disk: &base})
	again := pushOptions("v2")
	again.Files = []transfer.PushFile{{Name: "disk.img", Kind: api.FileDisk, Disk: &disk, ChainID: tip2}}
	for _, tt := range []struct {
		name   string
		revert int
		gone   bool
	}{{"all tags, for good", 0, true}, {"its tag", 1, false}, {"all tags", 0, false}} { // a pull keeps layers
		if err := s.reg.Revert(t.Context(), registry.VersionRef{ID: templateID, Number: &tt.revert}); err != nil {
			t.Fatal(err)
		}
		if tt.gone {
			if _, err := s.reg.GC(t.Context(), registry.GCOptions{EmptyTrash: true}); err != nil {
				t.Fatal(err)
			}
		}
		sent.Store(0)
		mustPush(t, c, again)
		if (sent.Load() > 0) != tt.gone {
			t.Errorf("%s: %d bytes were sent", tt.name, sent.Load())
		}
		d, _ := pullDisk(t, c, "v2", nil)
		mustRead(t, d, second)
		if err := s.reg.Revert(t.Context(), registry.VersionRef{ID: templateID}); err != nil {
			t.Fatal(err)
		}
		pushDisk(t, c, "v1 "+tt.name, base, nil)
		pushDisk(t, c, "v2", disk, &transfer.PushParent{ChainID: tip1, Disk: &base})
	}
}
