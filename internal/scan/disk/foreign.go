package disk

import (
	"errors"
	"fmt"
	"io"
)

// ErrNoDisk reports that a file is not a disk: nothing in it is what disks have at their beginning.
var ErrNoDisk = errors.New(
	"not a disk image: no partition table and no supported file system found")

// Advice about files other than disks.
const (
	convert = "convert it with qemu-img convert -O qcow2"
	unpack  = "unpack it first"
	other   = "give a raw or a qcow2 image of a VM's disk"
)

// foreign are the signatures of files that users mistake for disks. Negative offsets are from the
// end.
var foreign = []struct {
	at         int64
	text       string
	name, todo string
}{
	{0, "KDMV", "a VMDK image", convert},
	{0, "# Disk DescriptorFile", "the description of a VMDK image", convert},
	{0, "vhdxfile", "a VHDX image", convert},
	{0, "conectix", "a VHD image", convert},
	{64, "\x7f\x10\xda\xbe", "a VDI image", convert},
	{0, "WithoutFreeSpace", "a Parallels image", convert},
	{0, "WithouFreSpacExt", "a Parallels image", convert},
	{0, "QED\x00", "a QED image", convert},
	{-512, "koly", "an Apple disk image (DMG)", convert},
	{0, "encrcdsa", "an encrypted Apple disk image", other},
	{0, "sprs", "an Apple sparse image", other},
	{0, "xar!", "an installer package of macOS", other},
	{0, "\x1f\x8b", "compressed with gzip", unpack},
	{0, "\xfd7zXZ\x00", "compressed with xz", unpack},
	{0, "\x28\xb5\x2f\xfd", "compressed with zstd", unpack},
	{0, "BZh", "compressed with bzip2", unpack},
	{0, "\x04\x22\x4d\x18", "compressed with lz4", unpack},
	{0, "PK\x03\x04", "a zip archive", unpack},
	{0, "7z\xbc\xaf\x27\x1c", "a 7z archive", unpack},
	{257, "ustar", "a tar archive", "unpack it and scan its disk, or its directory with dir:"},
	{32769, "CD001", "an image of a CD or DVD", other},
	{0, "\x7fELF", "a program", other},
	{0, "MZ", "a program for Windows", other},
	{0, "\xcf\xfa\xed\xfe", "a program for macOS", other},
	{0, "#!", "a script", other},
	{0, "%PDF", "a PDF document", other},
	{0, "<?xml", "an XML document", other},
}

// noDisk returns why data without a partition table and without a file system is refused.
func noDisk(r io.ReaderAt, size int64) error {
	if size == 0 {
		return fmt.Errorf("%w; the file is empty: %s", ErrNoDisk, other)
	}
	for _, f := range foreign {
		at := f.at
		if at < 0 {
			at += size
		}
		b := make([]byte, len(f.text))
		if at >= 0 && at <= size-int64(len(b)) && readAll(r, b, at) == nil && string(b) == f.text {
			return fmt.Errorf("%w; it looks like %s: %s", ErrNoDisk, f.name, f.todo)
		}
	}
	return fmt.Errorf("%w (looked for GPT, MBR, ext2, ext3, ext4, APFS and other known formats): %s", ErrNoDisk, other)
}
