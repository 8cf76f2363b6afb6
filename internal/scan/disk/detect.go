package disk

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/buildyard/buildyard/internal/scan/disk/lvm"
)

// contentKind is the content of a partition, as far as its beginning and type show it.
type contentKind struct {
	name            string // for users
	reason          string // why it is not read; "" = it is
	mayHavePackages bool   // it may hold packages
}

// Formats that are read.
const (
	formatExt4  = "ext4"
	formatXFS   = "xfs"
	formatBtrfs = "btrfs"
	formatAPFS  = "apfs"
	formatHFS   = "hfsplus"
	formatLUKS  = "LUKS"
	formatLVM   = "LVM"
)

// Formats that make something no disk when it has no partition table.
const (
	formatUnknown = "unknown"
	formatCD      = "ISO 9660"
)

const (
	reasonUnsupported = "this file system cannot be read here"
	reasonEncrypted   = "it is encrypted"
	reasonNoPackages  = "it holds no packages"
)

// signature is a sequence of bytes at an offset that identifies a format.
type signature struct {
	offset int64
	magic  string
	kind   contentKind
}

// signatures are checked in this order. A file system may leave the signature of an older one, so those
// at higher offsets come last.
var signatures = []signature{
	{32, "NXSB", contentKind{name: formatAPFS}},
	{1080, "\x53\xef", contentKind{name: formatExt4}},
	{0, "XFSB", contentKind{name: formatXFS}},
	{65600, "_BHRfS_M", contentKind{name: formatBtrfs}},
	{3, "NTFS    ", contentKind{"NTFS", reasonUnsupported, true}},
	{3, "EXFAT   ", contentKind{"exFAT", reasonUnsupported, true}},
	{3, "-FVE-FS-", contentKind{"BitLocker", reasonEncrypted, true}},
	{hfsHeaderOffset, "H+\x00\x04", contentKind{name: formatHFS}},
	{hfsHeaderOffset, "HX\x00\x05", contentKind{name: formatHFS}},
	{hfsHeaderOffset + hfsEmbeddedAt, "H+", contentKind{name: formatHFS}}, // within a wrapper of HFS
	{hfsHeaderOffset, hfsMagic, contentKind{"HFS", "HFS without the plus cannot be read here", true}},
	{0, "LUKS\xba\xbe", contentKind{name: formatLUKS, mayHavePackages: true}},
	{512, "LABELONE", contentKind{name: formatLVM, mayHavePackages: true}},
	{4096, "\xfc\x4e\x2b\xa9", contentKind{"a RAID", "parts of a RAID cannot be read here", true}},
	{0, "\xfc\x4e\x2b\xa9", contentKind{"a RAID", "parts of a RAID cannot be read here", true}},
	{0, "hsqs", contentKind{"SquashFS", reasonUnsupported, true}},
	{1024, "\xe2\xe1\xf5\xe0", contentKind{"EROFS", reasonUnsupported, true}},
	{1024, "\x10\x20\xf5\xf2", contentKind{"F2FS", reasonUnsupported, true}},
	{32769, "CD001", contentKind{formatCD, reasonUnsupported, true}},
	{4086, "SWAPSPACE2", contentKind{"swap", reasonNoPackages, false}},
	{65526, "SWAPSPACE2", contentKind{"swap", reasonNoPackages, false}},
	{4086, "SWAP-SPACE", contentKind{"swap", reasonNoPackages, false}},
	{82, "FAT32   ", contentKind{"FAT", reasonUnsupported, true}},
	{54, "FAT16   ", contentKind{"FAT", reasonUnsupported, true}},
	{54, "FAT12   ", contentKind{"FAT", reasonUnsupported, true}},
}

// partitionTypes are those of partitions without packages, unless there is a supported file system in them,
// and of others whose content identifies nothing.
var partitionTypes = map[string]contentKind{
	"C12A7328-F81F-11D2-BA4B-00A0C93EC93B": {"the EFI system partition", reasonNoPackages, false},
	"EF":                                   {"the EFI system partition", reasonNoPackages, false},
	"21686148-6449-6E6F-744E-656564454649": {"the BIOS boot partition", reasonNoPackages, false},
	"E3C9E316-0B5C-4DB8-817D-F92DF00215AE": {"the Microsoft reserved partition", reasonNoPackages, false},
	"DE94BBA4-06D1-4D40-A16A-BFD50179D6AC": {"a Windows recovery partition", reasonNoPackages, false},
	"0657FD6D-A4AB-43C4-84E5-0933C84B4F4F": {"swap", reasonNoPackages, false},
	"82":                                   {"swap", reasonNoPackages, false},
	"9E1A2D38-C612-4316-AA26-8B49521E5A8B": {"the PReP boot partition", reasonNoPackages, false},
	"41":                                   {"the PReP boot partition", reasonNoPackages, false},
	"426F6F74-0000-11AA-AA11-00306543ECAC": {"the Apple boot partition", reasonNoPackages, false},
	"69646961-6700-11AA-AA11-00306543ECAC": {"the Apple system container", reasonNoPackages, false},
	"52637672-7900-11AA-AA11-00306543ECAC": {"the Apple recovery container", reasonNoPackages, false},
	"53746F72-6167-11AA-AA11-00306543ECAC": {"Core Storage", "volumes of Core Storage cannot be read here", true},
	"Apple_Boot":                           {"the Apple boot partition", reasonNoPackages, false},
	"Apple_Bootstrap":                      {"the Apple boot partition", reasonNoPackages, false},
	"Apple_Patches":                        {"patches of Mac OS", reasonNoPackages, false},
	"Apple_Driver":                         {"a driver of Mac OS", reasonNoPackages, false},
	"Apple_Driver43":                       {"a driver of Mac OS", reasonNoPackages, false},
	"Apple_Driver43_CD":                    {"a driver of Mac OS", reasonNoPackages, false},
	"Apple_Driver_ATA":                     {"a driver of Mac OS", reasonNoPackages, false},
	"Apple_Driver_ATAPI":                   {"a driver of Mac OS", reasonNoPackages, false},
	"Apple_FWDriver":                       {"a driver of Mac OS", reasonNoPackages, false},
}

// appleFirmwareTypes are types of containers that only the firmware uses.
var appleFirmwareTypes = map[string]bool{
	"69646961-6700-11AA-AA11-00306543ECAC": true, "52637672-7900-11AA-AA11-00306543ECAC": true,
}

// dataPartitionTypes are types of partitions that are made for the files of Linux and macOS. If the beginning
// of one is empty, its content may have been lost.
var dataPartitionTypes = map[string]bool{
	"":                                     true, // a disk without a table
	"83":                                   true, // Linux, and its LVM and RAID
	"8E":                                   true,
	"FD":                                   true,
	"0FC63DAF-8483-4772-8E79-3D69D8477DE4": true,
	"E6D6D379-F507-44C2-A23C-238F2A3DF928": true,
	"A19D880F-05FC-4D3B-A006-743F0F84911E": true,
	"CA7D7CCB-63ED-4C53-861C-1742536059CC": true, // LUKS
	"4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709": true, // the root of x86-64, of arm64
	"B921B045-1DF0-41C3-AF44-4C6F280D3FAE": true,
	"8484680C-9521-48C6-9C11-B0720656F69E": true, // /usr of x86-64, of arm64
	"B0E01050-EE5F-4390-949A-9101B17104E9": true,
	"933AC7E1-2EB4-4F13-B844-0E14E2AEF915": true, // /home, /srv, /var, /boot
	"3B8F8425-20E0-4F3B-907F-1A25A76F98E8": true,
	"4D21B016-B534-45C2-A9FB-5C16E091FD2D": true,
	"BC13C2FF-59E6-4262-A352-B275FD6F7172": true,
	"7C3457EF-0000-11AA-AA11-00306543ECAC": true, // APFS
	"48465300-0000-11AA-AA11-00306543ECAC": true, // HFS+
	"AF":                                   true,
	"Apple_HFS":                            true,
	"Apple_HFSX":                           true,
}

// Form of HFS+ and HFS: the header, which names an embedded volume of HFS+, and the copy of it, which is that far from
// the end.
const (
	hfsHeaderOffset = 1024
	hfsEmbeddedAt   = 124
	hfsMagic        = "BD"
)

// detectBytes is the number of bytes in which signatures occur.
const detectBytes = 66 << 10

// detectKind checks the beginning of a partition and its type.
func detectKind(r io.ReaderAt, p Partition) (contentKind, error) {
	typed, known := partitionTypes[p.Type]
	if known && appleFirmwareTypes[p.Type] {
		return typed, nil // APFS, but without files of the user
	}
	b := make([]byte, min(detectBytes, p.Length))
	if err := readFullAt(r, b, 0); err != nil {
		return typed, err
	}
	if lvm.IsPhysicalVolume(b) { // parts of a file system may be left between its labels and metadata
		return contentKind{name: formatLVM, mayHavePackages: true}, nil
	}
	for _, m := range signatures {
		if end := m.offset + int64(len(m.magic)); end <= int64(len(b)) && string(b[m.offset:end]) == m.magic &&
			m.isPlausible(b) {
			if known && (m.kind.reason != "" || m.kind.name == formatLUKS) { // such as swap
				return typed, nil
			}
			return m.kind, nil
		}
	}
	if known {
		return typed, nil
	}
	if dataPartitionTypes[p.Type] && hasHFSCopy(r, p.Length) {
		return contentKind{name: formatHFS}, nil
	}
	if len(bytes.TrimLeft(b, "\x00")) == 0 {
		return contentKind{"empty", "its beginning has only zeros", dataPartitionTypes[p.Type]}, nil
	}
	return contentKind{formatUnknown, "no supported file system was found in it", true}, nil
}

// isPlausible checks further fields of a format with a short signature.
func (m signature) isPlausible(b []byte) bool {
	switch {
	case m.kind.name == formatExt4: // the size of a block
		return binary.LittleEndian.Uint32(b[1024+24:]) <= 6
	case m.magic == hfsMagic || m.offset == hfsHeaderOffset+hfsEmbeddedAt: // the size of a block, and of the name
		h := b[hfsHeaderOffset:]
		block, name := binary.BigEndian.Uint32(h[20:]), h[36]
		return string(h[:2]) == hfsMagic && block > 0 && block%512 == 0 && name > 0 && name < 28
	}
	return true
}

// hasHFSCopy reports whether the copy of a header of HFS+ is at the end of a partition, whose beginning is lost.
func hasHFSCopy(r io.ReaderAt, length int64) bool {
	var b [4]byte
	return length > 2*hfsHeaderOffset && readFullAt(r, b[:], length&^511-hfsHeaderOffset) == nil &&
		(string(b[:]) == "H+\x00\x04" || string(b[:]) == "HX\x00\x05")
}
