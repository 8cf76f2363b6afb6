package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
	"github.com/buildyard/buildyard/internal/scan/disk/luks"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// onDisk makes a disk with a partition for each content.
func onDisk(t testing.TB, contents ...[]byte) memory {
	t.Helper()
	var table []disktest.Part
	at := int64(mib)
	for _, b := range contents {
		table = append(table, disktest.Part{Type: disktest.Linux, Start: at, Length: int64(len(b))})
		at += (int64(len(b))/mib + 1) * mib
	}
	m := make(memory, at+mib)
	for k, p := range table {
		copy(m[p.Start:], contents[k])
	}
	if err := disktest.WriteGPT(m, int64(len(m)), 512, table...); err != nil {
		t.Fatal(err)
	}
	return m
}

// contents formats the volumes of a disk with the file hello in them, and what is skipped.
func contents(t testing.TB, m []byte, keys ...string) []string {
	t.Helper()
	var list [][]byte
	for _, k := range keys {
		list = append(list, []byte(k))
	}
	vols, skipped, err := disk.VolumesWithKeys(t.Context(), bytes.NewReader(m), int64(len(m)), disk.NewKeys(list))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range vols {
		b, err := fs.ReadFile(filesOf(t, v), "hello")
		got = append(got, fmt.Sprintf("%d %s %q %q %v mapped %v", v.Partition, v.Format, v.Name, b, err, v.IsMapped))
	}
	for _, s := range skipped {
		got = append(got, fmt.Sprintf("%d %s: %s, %v", s.Partition, s.Name, s.Reason, s.MayHavePackages))
	}
	return got
}

func equalLines(t testing.TB, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

const (
	noKey    = "it is encrypted: give its password, recovery key or key file with --key-file"
	wrongKey = "it is encrypted: the given key opens none of its key slots: check the file of --key-file"
)

// The volumes of a group that is on two partitions, in both orders of these, and next to another file system.
func TestLogicalVolumes(t *testing.T) {
	one := treetest.Unpacked(t, "lvm/testdata/pv1.zst")
	two := treetest.Unpacked(t, "lvm/testdata/pv2.zst")
	unread := func(name, kind string, partial bool) string {
		advice := ""
		if partial {
			advice = ": activate it, and scan vm_image:/dev/GROUP/VOLUME"
		}
		return fmt.Sprintf("0 logical volume vg0/%s: logical volumes of the type %q cannot be read here%s, %v", name,
			kind, advice, partial)
	}
	for _, order := range [][][]byte{{linux(t, "boot"), one, two}, {linux(t, "boot"), two, one}} {
		got := contents(t, onDisk(t, order...))
		for _, want := range []string{
			`1 ext4 "boot" "boot" <nil> mapped false`, `0 ext4 "logical" "hello\n" <nil> mapped true`,
			`0 ext4 "striped" "hello\n" <nil> mapped true`, `0 ext4 "vg0/origin" "hello\n" <nil> mapped true`,
			"0 logical volume vg0/swap (swap): it holds no packages, false", unread("mirrored", "raid1", true),
			unread("pool", "thin-pool", false), unread("thin", "thin", true), unread("snap", "snapshot", true),
		} {
			if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
				t.Errorf("no %s in\n%s", want, strings.Join(got, "\n"))
			}
		}
		if len(got) != 9 {
			t.Errorf("%d lines", len(got))
		}
	}
	equalLines(t, contents(t, two), "0 LVM: it has no LVM metadata, and no other part of the disk has that of its "+
		"volume group, true")
}

func TestEncrypted(t *testing.T) {
	plain := treetest.Unpacked(t, "luks/testdata/luks2-ext4.img.zst")
	nested := treetest.Unpacked(t, "luks/testdata/luks2-lvm.img.zst")
	old := treetest.Unpacked(t, "luks/testdata/luks1.img.zst")
	m := onDisk(t, linux(t, "boot"), nested, plain, old)
	boot := `1 ext4 "boot" "boot" <nil> mapped false`
	equalLines(t, contents(t, m), boot, "2 partition 2 (LUKS): "+noKey+", true",
		"3 partition 3 (LUKS): "+noKey+", true", "4 partition 4 (LUKS): "+noKey+", true")
	equalLines(t, contents(t, m, "secret"), boot, `3 ext4 "plain" "hello\n" <nil> mapped true`,
		`4 ext4 "plain" "hello\n" <nil> mapped true`, `0 ext4 "plain" "hello\n" <nil> mapped true`)
	equalLines(t, contents(t, m, "other"), boot, `3 ext4 "plain" "hello\n" <nil> mapped true`,
		"2 partition 2 (LUKS): "+wrongKey+", true", "4 partition 4 (LUKS): "+wrongKey+", true")
	equalLines(t, contents(t, nested, "secret"), `0 ext4 "plain" "hello\n" <nil> mapped true`)
	_, skipped, err := disk.VolumesWithKeys(t.Context(), bytes.NewReader(plain), int64(len(plain)),
		disk.NewKeys([][]byte{[]byte("x")}))
	if err != nil || len(skipped) != 1 || !errors.Is(skipped[0].Err, luks.ErrWrongKey) {
		t.Errorf("%v, %v", skipped, err)
	}
}

// An encrypted file system of an unknown kind is named as such, and swap has no packages.
func TestEncryptedContent(t *testing.T) {
	m := treetest.Unpacked(t, "luks/testdata/luks2-ext4.img.zst")
	m[16<<20+1024+56]++ // the magic number of the file system
	equalLines(t, contents(t, onDisk(t, m), "secret"),
		"1 partition 1 (unknown in LUKS): no supported file system was found in it, true")
	table := disktest.Part{Type: disktest.Swap, Start: mib, Length: int64(len(m))}
	d := make(memory, len(m)+2*mib)
	copy(d[mib:], m)
	if err := disktest.WriteGPT(d, int64(len(d)), 512, table); err != nil {
		t.Fatal(err)
	}
	equalLines(t, contents(t, d, "secret"), "1 partition 1 (swap): it holds no packages, false")
}

// A form of LUKS that is not read is named, with what to do.
func TestUnsupportedLUKS(t *testing.T) {
	b := marked(0, "LUKS\xba\xbe\x00\x01aes")
	copy(b[40:], "cbc-essiv:sha256")
	equalLines(t, contents(t, b), `0 LUKS: it is encrypted: the cipher "aes-cbc-essiv:sha256" is not supported here, `+
		"only aes-xts-plain64: open it with cryptsetup, and scan vm_image:/dev/mapper/NAME, true")
}

// Encrypted APFS volumes are read with a password or recovery key; each has its own.
func TestFileVault(t *testing.T) {
	hello := []apfstest.File{{Path: "hello", Data: []byte("hello\n")}}
	var volumes []apfstest.Volume
	for i := range 20 {
		volumes = append(volumes, apfstest.Volume{
			Name: fmt.Sprintf("v%d", i), Files: hello, Passwords: []string{fmt.Sprintf("password %d", i), "ABCD-EFGH"},
		})
	}
	image := func(list []apfstest.Volume) memory {
		m := make(memory, 8*mib)
		if _, err := apfstest.Write(offset{m, 0}, apfstest.Container{Volumes: list}); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := image(append([]apfstest.Volume{{Name: "open", Files: hello}}, volumes[:2]...))
	open := `0 apfs "open" "hello\n" <nil> mapped false`
	equalLines(t, contents(t, m), open, `0 volume "v0": `+noKey+", true", `0 volume "v1": `+noKey+", true")
	equalLines(t, contents(t, m, "wrong", "password 1"), open, `0 apfs "v1" "hello\n" <nil> mapped false`,
		`0 volume "v0": it is encrypted: unlock volume "v0": the given key opens none of its key records: check the `+
			"file of --key-file, true")
	equalLines(t, contents(t, m, "ABCD-EFGH"), open, `0 apfs "v0" "hello\n" <nil> mapped false`,
		`0 apfs "v1" "hello\n" <nil> mapped false`)
	if got := contents(t, image(volumes), "ABCD-EFGH"); len(got) != 20 ||
		got[16] != `0 volume "v16": it is encrypted: the disk has more than 16 encrypted parts, true` {
		t.Errorf("of 20 volumes:\n%s", strings.Join(got, "\n"))
	}
}
