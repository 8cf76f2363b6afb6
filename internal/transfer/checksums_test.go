package transfer_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// copyOf copies a disk and remembers it.
func copyOf(t *testing.T, d diskfile.Disk) (raw, sums string) {
	t.Helper()
	from, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	var files [2]*os.File
	for i, name := range []string{"copy", "sums"} {
		if files[i], err = os.Create(filepath.Join(t.TempDir(), name)); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
	}
	var last transfer.Progress
	c := transfer.DiskCopy{From: from, RawCopy: files[0], Checksums: files[1], Progress: func(p transfer.Progress) {
		last = p
	}}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last.Done != last.Total {
		t.Errorf("progress ended at %+v", last)
	}
	return files[0].Name(), files[1].Name()
}

// TestPushAgainstSums: a disk that was changed in place, extended or truncated after its sums were made is sent
// as its changes, and a pull restores the disk.
func TestPushAgainstSums(t *testing.T) {
	rnd := rand.New(rand.NewPCG(20, 20))
	s := serve(t, t.TempDir())
	c := s.client(t)
	sent := counted(s)
	old := grow(rnd, nil, 9<<20+1000)
	base := writeFile(t, "base", old)
	tip := pushDisk(t, c, "v1", base, nil)
	raw, sums := copyOf(t, base)
	if got, err := os.ReadFile(raw); err != nil || !bytes.Equal(got, old) {
		t.Fatalf("the copy differs: %d bytes, %v", len(got), err)
	}
	for tag, size := range map[string]int{"same size": len(old), "shorter": 7<<20 + 10, "longer": 80<<20 +
		1, "much shorter": 100} {
		disk := make([]byte, size)
		copy(disk, old)
		for range 3 {
			at := rnd.IntN(size)
			copy(disk[at:], bytes.Repeat([]byte{byte(1 + rnd.IntN(255))}, 6000))
			clear(disk[at/2 : min(size, at/2+9000)])
		}
		sent.Store(0)
		pushDisk(t, c, tag, writeFile(t, "next", disk), &transfer.PushParent{ChainID: tip, ChecksumFile: sums})
		if sent.Load() > 200<<10 {
			t.Errorf("%s: %d bytes were sent", tag, sent.Load())
		}
		d, result := pullDisk(t, c, tag, nil)
		if n := len(result.Manifest.Files[0].Layers); n != 2 {
			t.Errorf("%s: %d layers", tag, n)
		}
		mustRead(t, d, disk)
	}
	// Nothing differs.
	sent.Store(0)
	pushDisk(t, c, "again", base, &transfer.PushParent{ChainID: tip, ChecksumFile: sums})
	d, _ := pullDisk(t, c, "again", nil)
	mustRead(t, d, old)
	if sent.Load() > 4096 {
		t.Errorf("%d bytes were sent for nothing", sent.Load())
	}
}

// TestPushWithoutItsSums: if the file of sums is missing when the push begins, the whole disk is sent.
func TestPushWithoutItsSums(t *testing.T) {
	s := serve(t, t.TempDir())
	path := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(path, bytes.Repeat([]byte("abcdefgh"), 1<<15), 0o600); err != nil {
		t.Fatal(err)
	}
	o := transfer.PushOptions{
		Request: api.PushRequest{ID: templateID, Name: "debian", Tag: "v1", Config: []byte("{}")},
		Files: []transfer.PushFile{{
			Name: "disk.img", Kind: api.FileDisk, Disk: &diskfile.Disk{Path: path},
			Parent: &transfer.PushParent{ChainID: strings.Repeat("ab", 32), ChecksumFile: path + ".gone"},
		}},
	}
	if _, err := s.client(t).Push(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	m, err := s.client(t).Manifest(t.Context(), transfer.VersionRef{ID: templateID})
	if err != nil || len(m.Files) != 1 || len(m.Files[0].Layers) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}
