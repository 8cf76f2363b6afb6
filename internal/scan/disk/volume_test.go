package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
	"github.com/buildyard/buildyard/internal/scan/fs/ext4"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// linux makes a small file system with one file in it.
func linux(t testing.TB, label string) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tree"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tree", "hello"), []byte(label), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, treetest.ExtProgram(t, "mke2fs"), "-q", "-F", "-t", "ext4", "-L", label, "-d", "tree", "image", "2M")
	b, err := os.ReadFile(filepath.Join(dir, "image"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const mib = 1 << 20

// filesOf opens a volume.
func filesOf(t testing.TB, v disk.Volume) fs.FS {
	t.Helper()
	files, err := v.Open()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// marked makes a partition that looks like a file system.
func marked(at int, text string) []byte {
	b := make([]byte, mib)
	copy(b[at:], text)
	return b
}

func TestVolumes(t *testing.T) {
	root := linux(t, "root")
	crypt := marked(0, "LUKS\xba\xbe")
	broken := bytes.Clone(root)
	broken[1024+4]++
	m := make(memory, 16*mib)
	parts := []struct {
		kind, name string
		b          []byte
	}{
		{disktest.EFI, "esp", marked(82, "FAT32   ")},
		{disktest.Linux, "root", root},
		{disktest.Linux, "", crypt},
		{disktest.Linux, "xfs", marked(0, "XFSB")},
		{disktest.Swap, "", marked(4086, "SWAPSPACE2")},
		{disktest.Linux, "broken", broken},
		{disktest.Linux, "empty", make([]byte, mib)},
		{disktest.APFS, "wiped", make([]byte, mib)},
		{"EBD0A0A2-B9E5-4433-87C0-68B6B72699C7", "reserve", make([]byte, mib)},
		{disktest.Linux, "what", marked(5, "?")},
		{disktest.EFI, "hidden", linux(t, "hidden")},
	}
	var table []disktest.Part
	at := int64(mib)
	for _, p := range parts {
		table = append(table, disktest.Part{Type: p.kind, Name: p.name, Start: at, Length: int64(len(p.b))})
		copy(m[at:], p.b)
		at += int64(len(p.b))
	}
	if err := disktest.WriteGPT(m, int64(len(m)), 512, table...); err != nil {
		t.Fatal(err)
	}
	vols, skipped, err := disk.Volumes(bytes.NewReader(m), int64(len(m)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range vols {
		b, err := fs.ReadFile(filesOf(t, v), "hello")
		got = append(got, fmt.Sprintf("%d %s %s %s %v", v.Partition, v.Format, v.Name, b, err))
	}
	for _, s := range skipped {
		got = append(got, fmt.Sprintf("%d %s: %s, %v", s.Partition, s.Name, s.Reason, s.MayHavePackages))
	}
	want := []string{
		"2 ext4 root root <nil>", "11 ext4 hidden hidden <nil>",
		`1 partition 1 "esp" (the EFI system partition): it holds no packages, false`,
		"3 partition 3 (LUKS): it is encrypted: unsupported version 0 of LUKS, true",
		`4 partition 4 "xfs" (xfs): unsupported XFS feature: version 0: mount it, and scan dir:DIRECTORY, true`,
		"5 partition 5 (swap): it holds no packages, false",
		`6 partition 6 "broken" (ext4): the file system is damaged: its superblock is not what its checksum says, true`,
		`7 partition 7 "empty" (empty): its beginning has only zeros, true`,
		`8 partition 8 "wiped" (empty): its beginning has only zeros, true`,
		`9 partition 9 "reserve" (empty): its beginning has only zeros, false`,
		`10 partition 10 "what" (unknown): no supported file system was found in it, true`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if !errors.Is(skipped[4].Err, ext4.ErrDamaged) {
		t.Errorf("%v", skipped[4].Err)
	}
}

func TestBareFileSystem(t *testing.T) {
	b := linux(t, "bare")
	vols, skipped, err := disk.Volumes(bytes.NewReader(b), int64(len(b)))
	if err != nil || len(vols) != 1 || len(skipped) > 0 || vols[0].Name != "bare" || vols[0].Partition != 0 {
		t.Fatalf("%+v, %+v, %v", vols, skipped, err)
	}
}

func TestBareXFS(t *testing.T) {
	b := treetest.Unpacked(t, "../fs/xfs/testdata/v5.img.zst")
	vols, skipped, err := disk.Volumes(bytes.NewReader(b), int64(len(b)))
	if err != nil || len(vols) != 1 || len(skipped) > 0 || vols[0].Name != "carried5" || vols[0].Format != "xfs" ||
		vols[0].Partition != 0 || len(vols[0].Notes) > 0 {
		t.Fatalf("%+v, %+v, %v", vols, skipped, err)
	}
	if hello, err := fs.ReadFile(filesOf(t, vols[0]), "hello"); err != nil || string(hello) != "hello\n" {
		t.Errorf("%q, %v", hello, err)
	}
}

// Without a partition table, with a default subvolume: it is the first volume, and the rest is another one.
func TestBareBtrfs(t *testing.T) {
	for image, want := range map[string][]string{
		"mixed":    {"carried-mixed", "hello"},
		"separate": {"carried-separate", "nested/file", "top level", "hello"},
	} {
		b := treetest.Unpacked(t, "../fs/btrfs/testdata/"+image+".img.zst")
		vols, skipped, err := disk.Volumes(bytes.NewReader(b), int64(len(b)))
		if err != nil || len(vols)*2 != len(want) || len(skipped) > 0 {
			t.Fatalf("%s: %+v, %+v, %v", image, vols, skipped, err)
		}
		for k, v := range vols {
			if v.Name != want[2*k] || v.Format != "btrfs" || v.Partition != 0 || len(v.Notes) > 0 {
				t.Errorf("%s: %+v", image, v)
			}
			if _, err := fs.Stat(filesOf(t, v), want[2*k+1]); err != nil {
				t.Errorf("%s: %s: %v", image, v.Name, err)
			}
		}
	}
}

// A container as macOS makes it: its internal volumes are skipped, system and data have their roles
// and one group, and an encrypted volume is named.
func TestVolumesOfAPFS(t *testing.T) {
	group := [16]byte{1, 2, 3}
	const start = mib
	m := make(memory, 32*mib)
	_, err := apfstest.Write(offset{m, start}, apfstest.Container{Volumes: []apfstest.Volume{
		{Name: "Macintosh HD", Role: 1, Group: group, Files: []apfstest.File{{Path: "System", Mode: 0o40755}}},
		{Name: "Data", Role: 0x40, Group: group},
		{Name: "Preboot", Role: 0x10},
		{Name: "VM", Role: 8},
		{Name: "Secret", Encrypted: true},
		{Name: "Other"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := disktest.WriteGPT(m, int64(len(m)), 4096,
		disktest.Part{Type: disktest.APFS, Start: start, Length: 30 * mib}); err != nil {
		t.Fatal(err)
	}
	vols, skipped, err := disk.Volumes(bytes.NewReader(m), int64(len(m)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range vols {
		_, err := fs.ReadDir(filesOf(t, v), ".")
		got = append(got, fmt.Sprintf("%d %s %q %q %v %v", v.Partition, v.Format, v.Name, v.Role, v.Group != "", err))
	}
	for _, s := range skipped {
		got = append(got, fmt.Sprintf("%d %s: %v, %v", s.Partition, s.Name, s.MayHavePackages,
			strings.HasPrefix(s.Reason, "it is encrypted")))
	}
	want := []string{
		`1 apfs "Macintosh HD" "system" true <nil>`, `1 apfs "Data" "data" true <nil>`, `1 apfs "Other" "" false <nil>`,
		`1 volume "Preboot" (preboot): false, false`, `1 volume "VM" (vm): false, false`,
		`1 volume "Secret": true, true`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// A volume of a container whose superblock is damaged may have had packages.
func TestLostVolume(t *testing.T) {
	m := make(memory, 8*mib)
	if _, err := apfstest.Write(m,
		apfstest.Container{
			Volumes: []apfstest.Volume{{Name: "System", Role: 1}, {Name: "Data", Role: 0x40}},
		}); err != nil {
		t.Fatal(err)
	}
	m[bytes.Index(m, []byte("Data\x00"))]++
	vols, skipped, err := disk.Volumes(bytes.NewReader(m), int64(len(m)))
	if err != nil || len(vols) != 1 || len(skipped) != 1 || !skipped[0].MayHavePackages ||
		!errors.Is(skipped[0].Err, apfs.ErrDamaged) {
		t.Errorf("%+v, %+v, %v", vols, skipped, err)
	}
}

// offset writes further into a disk.
type offset struct {
	m  memory
	by int64
}

func (o offset) WriteAt(p []byte, off int64) (int, error) { return o.m.WriteAt(p, off+o.by) }
