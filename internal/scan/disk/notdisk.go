package disk

import (
	"errors"
	"fmt"
	"io"
)

// ErrNotDisk reports that a file is not a disk: nothing in it is what disks have at their beginning.
var ErrNotDisk = errors.New(
	"not a disk image: no partition table and no supported file system found")

// Advice about files other than disks.
const (
	adviceConvert = "convert it with qemu-img convert -O qcow2"
	adviceUnpack  = "unpack it first"
	adviceFormats = "give an image of a VM's disk: raw, qcow2, VMDK, OVA or DMG"
)

// nonDiskSignatures are the signatures of files that users mistake for disks. Negative offsets are from the
// end.
var nonDiskSignatures = []struct {
	at         int64
	text       string
	name, todo string
}{
	{0, "KDMV", "a VMDK image", adviceConvert},
	{0, "# Disk DescriptorFile", "the description of a VMDK image", adviceConvert},
	{0, "vhdxfile", "a VHDX image", adviceConvert},
	{0, "conectix", "a VHD image", adviceConvert},
	{64, "\x7f\x10\xda\xbe", "a VDI image", adviceConvert},
	{0, "WithoutFreeSpace", "a Parallels image", adviceConvert},
	{0, "WithouFreSpacExt", "a Parallels image", adviceConvert},
	{0, "QED\x00", "a QED image", adviceConvert},
	{-512, "koly", "an Apple disk image (DMG)", adviceFormats},
	{0, "encrcdsa", "an encrypted Apple disk image", adviceFormats},
	{0, "sprs", "an Apple sparse image", adviceFormats},
	{0, "xar!", "an installer package of macOS", adviceFormats},
	{0, "\x1f\x8b", "compressed with gzip", adviceUnpack},
	{0, "\xfd7zXZ\x00", "compressed with xz", adviceUnpack},
	{0, "\x28\xb5\x2f\xfd", "compressed with zstd", adviceUnpack},
	{0, "BZh", "compressed with bzip2", adviceUnpack},
	{0, "\x04\x22\x4d\x18", "compressed with lz4", adviceUnpack},
	{0, "PK\x03\x04", "a zip archive", adviceUnpack},
	{0, "7z\xbc\xaf\x27\x1c", "a 7z archive", adviceUnpack},
	{257, "ustar", "a tar archive", "unpack it and scan its disk, or its directory with dir:"},
	{32769, "CD001", "an image of a CD or DVD", adviceFormats},
	{0, "\x7fELF", "a program", adviceFormats},
	{0, "MZ", "a program for Windows", adviceFormats},
	{0, "\xcf\xfa\xed\xfe", "a program for macOS", adviceFormats},
	{0, "#!", "a script", adviceFormats},
	{0, "%PDF", "a PDF document", adviceFormats},
	{0, "<?xml", "an XML document", adviceFormats},
}

// notDiskError returns why data without a partition table and without a file system is refused.
func notDiskError(r io.ReaderAt, size int64) error {
	if size == 0 {
		return fmt.Errorf("%w; the file is empty: %s", ErrNotDisk, adviceFormats)
	}
	for _, f := range nonDiskSignatures {
		at := f.at
		if at < 0 {
			at += size
		}
		b := make([]byte, len(f.text))
		if at >= 0 && at <= size-int64(len(b)) && readFullAt(r, b, at) == nil && string(b) == f.text {
			return fmt.Errorf("%w; it looks like %s: %s", ErrNotDisk, f.name, f.todo)
		}
	}
	return fmt.Errorf("%w (looked for GPT, MBR, ext2, ext3, ext4, XFS, Btrfs, APFS, HFS+ and other known formats): %s",
		ErrNotDisk, adviceFormats)
}
