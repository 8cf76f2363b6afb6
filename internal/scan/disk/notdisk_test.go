package disk_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/disk/disktest"
)

// Other files are refused with their type and advice. A disk with an unknown part, and one with a
// known file system that is not supported here, are not refused.
func TestNoDisk(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":     {nil, "the file is empty: give an image of a VM's disk: raw, qcow2, VMDK"},
		"text":      {[]byte("hello\n"), "(looked for GPT, MBR, ext2, ext3, ext4, XFS, Btrfs, APFS"},
		"long text": {bytes.Repeat([]byte("hello\n"), 100_000), "(looked for GPT, MBR"},
		"program":   {marked(0, "\x7fELF"), "it looks like a program"},
		"zip":       {marked(0, "PK\x03\x04"), "it looks like a zip archive: unpack it first"},
		"gzip":      {marked(0, "\x1f\x8b\x08"), "compressed with gzip: unpack it first"},
		"ISO":       {marked(32769, "CD001"), "an image of a CD or DVD: give"},
		"VMDK":      {marked(0, "KDMV"), "it looks like a VMDK image: convert it with qemu-img convert -O qcow2"},
		"VDI":       {marked(64, "\x7f\x10\xda\xbe"), "it looks like a VDI image: convert"},
		"DMG": {append(bytes.Repeat([]byte("x"), 1024),
			append([]byte("koly"), make([]byte, 508)...)...), "it looks like an Apple disk image (DMG)"},
		"tar":         {marked(257, "ustar"), "it looks like a tar archive"},
		"two bytes":   {[]byte("MZ"), "it looks like a program for Windows"},
		"one byte":    {[]byte("M"), "(looked for"},
		"half an MBR": {marked(510, "\x55\xaa and no table"), "(looked for"},
	} {
		vols, skipped, err := disk.Volumes(bytes.NewReader(c.b), int64(len(c.b)))
		if !errors.Is(err, disk.ErrNotDisk) || !strings.Contains(err.Error(), c.want) || len(vols)+len(skipped) > 0 {
			t.Errorf("%s: %v, %v, %v", name, err, vols, skipped)
		}
	}
	table := make(memory, 4*mib)
	if err := disktest.WriteGPT(table, int64(len(table)), 512,
		disktest.Part{Type: disktest.Linux, Start: mib, Length: mib}); err != nil {
		t.Fatal(err)
	}
	copy(table[mib:], "what is this")
	for name, b := range map[string][]byte{"a table": table, "Btrfs": marked(65600, "_BHRfS_M"), "LUKS": marked(0,
		"LUKS\xba\xbe")} {
		_, skipped, err := disk.Volumes(bytes.NewReader(b), int64(len(b)))
		if err != nil || len(skipped) != 1 || !skipped[0].MayHavePackages {
			t.Errorf("%s: %v, %v", name, err, skipped)
		}
	}
	_, skipped, err := disk.Volumes(bytes.NewReader(make([]byte, mib)), mib)
	if err != nil || len(skipped) != 1 || !skipped[0].MayHavePackages || skipped[0].Name != "empty" {
		t.Errorf("zeros: %v, %v", err, skipped)
	}
}
