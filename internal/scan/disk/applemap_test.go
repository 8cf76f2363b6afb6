package disk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus/hfsplustest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

func appleMap(t testing.TB, block int64) memory {
	t.Helper()
	m := make(memory, 8*mib)
	err := disktest.WriteAppleMap(m, int64(len(m)), block,
		disktest.Part{Type: "Apple_Driver43", Start: mib / 2, Length: mib / 2},
		disktest.Part{Type: disktest.AppleHFS, Name: "disk\x1b[31m image", Start: mib, Length: 5 * mib})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAppleMap(t *testing.T) {
	want := []disk.Partition{
		{Index: 2, Type: "Apple_Driver43", Start: mib / 2, Length: mib / 2},
		{Index: 3, Type: disktest.AppleHFS, Name: "disk[31m image", Start: mib, Length: 5 * mib},
	}
	for _, block := range []int64{512, 1024, 2048, 4096} {
		m := appleMap(t, block)
		if got := partitions(t, m); !slices.Equal(got, want) {
			t.Errorf("%d: %+v", block, got)
		}
		if got := partitions(t, m[:3*mib]); len(got) != 2 || got[1].Length != 2*mib {
			t.Errorf("%d, cut: %+v", block, got)
		}
	}
	// Without the first block, or with another size in it, the entries are in sectors.
	m := appleMap(t, 512)
	for _, first := range []string{"\x00\x00\x00\x00", "ER\x08\x00", "ER\x00\x07"} {
		copy(m, first)
		if got := partitions(t, m); !slices.Equal(got, want) {
			t.Errorf("%q: %+v", first, got)
		}
	}
}

// A map is damaged where its entries are not what the first one says. Something else is not a map.
func TestDamagedAppleMap(t *testing.T) {
	be := binary.BigEndian
	for name, c := range map[string]struct {
		lie  func(first, second []byte)
		want string // of the error; "" = there is no map
	}{
		"no entries":   {func(e, _ []byte) { be.PutUint32(e[4:], 0) }, "has 0 entries"},
		"too many":     {func(e, _ []byte) { be.PutUint32(e[4:], 257) }, "has 257 entries"},
		"most":         {func(e, _ []byte) { be.PutUint32(e[4:], 256) }, "ends after 4 of 256 entries"},
		"no second":    {func(_, e []byte) { e[0]++ }, "ends after 1 of 4 entries"},
		"no first":     {func(e, _ []byte) { e[0]++ }, ""},
		"another type": {func(e, _ []byte) { e[48]++ }, ""},
	} {
		m := appleMap(t, 512)
		c.lie(m[512:1024], m[1024:])
		got, err := disk.Partitions(bytes.NewReader(m), int64(len(m)))
		switch {
		case c.want == "" && (err != nil || len(got) != 1 || got[0].Index != 0):
			t.Errorf("%s: %+v, %v", name, got, err)
		case c.want != "" && (!errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hfsPlus writes a volume with one file.
func hfsPlus(t testing.TB, v hfsplustest.Volume) []byte {
	t.Helper()
	v.Files = []hfsplustest.File{{Path: "hello", Data: []byte(v.Name)}}
	m := make(memory, 4*mib)
	size, err := hfsplustest.Write(m, v)
	if err != nil {
		t.Fatal(err)
	}
	return m[:size]
}

func TestVolumesOfHFSPlus(t *testing.T) {
	usual := hfsPlus(t, hfsplustest.Volume{Name: "Usual"})
	lost := hfsPlus(t, hfsplustest.Volume{Name: "Lost"})
	clear(lost[:1536])
	plain := hfsPlus(t, hfsplustest.Volume{Name: "Plain", InWrapper: true})
	clear(plain[1024+124 : 1024+130])
	m := make(memory, 32*mib)
	parts := []disktest.Part{{Type: "Apple_Driver_ATA", Start: mib, Length: mib}}
	for i, b := range [][]byte{
		usual, hfsPlus(t, hfsplustest.Volume{Name: "Exact", IsExact: true}),
		hfsPlus(t, hfsplustest.Volume{Name: "Wrapped", InWrapper: true}), lost, plain,
		hfsPlus(t, hfsplustest.Volume{Name: "Full", Journal: hfsplustest.FullJournal}), bytes.Repeat([]byte("?"), mib),
	} {
		p := disktest.Part{Type: disktest.AppleHFS, Start: int64(2+4*i) * mib, Length: int64(len(b))}
		copy(m[p.Start:], b)
		parts = append(parts, p)
	}
	if err := disktest.WriteAppleMap(m, int64(len(m)), 512, parts...); err != nil {
		t.Fatal(err)
	}
	vols, skipped, err := disk.Volumes(bytes.NewReader(m), int64(len(m)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range vols {
		b, err := fs.ReadFile(filesOf(t, v), "hello")
		got = append(got, fmt.Sprintf("%d %s %s %s %v %d", v.Partition, v.Format, v.Name, b, err, len(v.Notes)))
	}
	for _, s := range skipped {
		got = append(got, fmt.Sprintf("%d %s: %s, %v", s.Partition, s.Name, s.Reason, s.MayHavePackages))
	}
	want := []string{
		"3 hfsplus Usual Usual <nil> 0", "4 hfsplus Exact Exact <nil> 0", "5 hfsplus Wrapped Wrapped <nil> 0",
		"6 hfsplus Lost Lost <nil> 1", "8 hfsplus Full Full <nil> 1",
		"2 partition 2 (a driver of Mac OS): it holds no packages, false",
		"7 partition 7 (HFS): HFS without the plus cannot be read here, true",
		"9 partition 9 (unknown): no supported file system was found in it, true",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// Without a table, a volume is found by its header, or by the copy of it.
func TestBareHFSPlus(t *testing.T) {
	b := hfsPlus(t, hfsplustest.Volume{Name: "Bare"})
	for notes := range 2 {
		vols, skipped, err := disk.Volumes(bytes.NewReader(b), int64(len(b)))
		if err != nil || len(vols) != 1 || len(skipped) > 0 || vols[0].Name != "Bare" || vols[0].Partition != 0 ||
			len(vols[0].Notes) != notes {
			t.Fatalf("%+v, %+v, %v", vols, skipped, err)
		}
		clear(b[1024:1536])
	}
}

// A CD for Macs that xorriso wrote has an Apple partition map and HFS+ with the files of the tree.
func TestXorriso(t *testing.T) {
	xorriso, err := exec.LookPath("xorriso")
	if err != nil {
		t.Skip("xorriso is not here")
	}
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		name := filepath.Join(tree, fmt.Sprintf("directory%d", i%7), fmt.Sprintf("file with a name %d", i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, bytes.Repeat([]byte(name), i), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("directory0", filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	run(t, dir, xorriso, "-as", "mkisofs", "-quiet", "-hfsplus", "-V", "CD", "-o", "image", "tree")
	b, err := os.ReadFile(filepath.Join(dir, "image"))
	if err != nil {
		t.Fatal(err)
	}
	vols, skipped, err := disk.Volumes(bytes.NewReader(b), int64(len(b)))
	if err != nil || len(vols) != 1 || vols[0].Format != "hfsplus" || vols[0].Name != "CD" || vols[0].Partition == 0 {
		t.Fatalf("%+v, %+v, %v", vols, skipped, err)
	}
	want, err := treetest.ListDir(tree)
	if err != nil {
		t.Fatal(err)
	}
	got, err := treetest.ListFS(filesOf(t, vols[0]))
	if err != nil {
		t.Fatal(err)
	}
	equal, diffs := treetest.Differences(want, got)
	for _, d := range diffs[:min(len(diffs), 10)] {
		t.Error(d)
	}
	t.Logf("%d/%d equal, notes %q", equal, len(want), vols[0].Notes)
}
