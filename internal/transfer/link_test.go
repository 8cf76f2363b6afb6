package transfer_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// TestPullLinksWhatIsHere: a second version transfers only its own file and links the other, and a local file
// of another size is replaced by a transfer.
func TestPullLinksWhatIsHere(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	base := write(t, "disk.img", api.FileDisk, "raw", 4<<20, map[int64]int{0: 2 << 20})
	delta := write(t, "disk.1.qcow2", api.FileDisk, "qcow2", 1<<20, map[int64]int{0: 9000})
	roots := map[string]string{}
	o := pushOptions("v1", base)
	o.LayerDigests = roots
	mustPush(t, c, o)
	o = pushOptions("v2", base, delta)
	o.Files[0].ChainID, o.LayerDigests = roots["disk.img"], roots
	mustPush(t, c, o)
	m, err := c.Manifest(t.Context(), transfer.VersionRef{ID: templateID})
	if err != nil || len(m.Files) != 2 || m.Files[0].Layers[0].Root != roots["disk.img"] ||
		m.Files[1].Layers[0].Root != roots["disk.1.qcow2"] {
		t.Fatalf("roots %v, manifest %+v, %v", roots, m.Files, err)
	}
	first := t.TempDir()
	mustPull(t, c, "v1", first, []file{base})
	here := filepath.Join(first, "disk.img")
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		have   string
		linked int
		litter []string
	}{
		"here":        {here, 1, nil},
		"interrupted": {here, 1, []string{"disk.img", "disk.img.partial", "disk.img.journal"}},
		"short":       {short, 0, nil},
		"gone":        {short + "er", 0, nil},
		"a directory": {first, 0, nil},
	} {
		dir := t.TempDir()
		for _, l := range tt.litter {
			if err := os.WriteFile(filepath.Join(dir, l), []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second one finds the link of the first
			got, err := c.Pull(t.Context(), transfer.PullOptions{
				Ref: transfer.VersionRef{ID: templateID, Tag: "v2"}, Dir: dir,
				LocalContent: map[string]diskfile.Disk{roots["disk.img"]: {Path: tt.have}},
			})
			linked := 0
			for _, f := range got.Files {
				if f.Form == transfer.FormLinked {
					linked++
				}
			}
			if err != nil || linked != tt.linked || (tt.linked == 1) != (got.TransferredBytes < 1<<20) {
				t.Fatalf("%s: %d linked, %d bytes, %v", name, linked, got.TransferredBytes, err)
			}
		}
		for _, f := range []file{base, delta} {
			if sum(t, filepath.Join(dir, f.Name)) != f.sum {
				t.Errorf("%s: %s is not what was pushed", name, f.Name)
			}
		}
		if left, _ := os.ReadDir(dir); len(left) != 4 { // config.json, nvram
			t.Errorf("%s: left are %v", name, left)
		}
	}
}
