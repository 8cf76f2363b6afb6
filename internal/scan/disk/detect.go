package disk

import (
	"bytes"
	"encoding/binary"
	"io"
)

// kind is the content of a partition, as far as its beginning and type show it.
type kind struct {
	name   string // for users
	reason string // why it is not read; "" = it is
	loses  bool   // it may hold packages
}

// Formats that are read.
const (
	formatExt4 = "ext4"
	formatAPFS = "apfs"
)

// Formats that make something no disk when it has no partition table.
const (
	formatUnknown = "unknown"
	formatCD      = "ISO 9660"
)

const (
	unread    = "this file system cannot be read here"
	encrypted = "it is encrypted"
	noFiles   = "it holds no packages"
)

// signature is a sequence of bytes at an offset that identifies a format.
type signature struct {
	at   int64
	text string
	kind kind
}

// marks are checked in this order. A file system may leave the signature of an older one, so those
// at higher offsets come last.
var marks = []signature{
	{32, "NXSB", kind{name: formatAPFS}},
	{1080, "\x53\xef", kind{name: formatExt4}},
	{0, "XFSB", kind{"XFS", unread, true}},
	{65600, "_BHRfS_M", kind{"Btrfs", unread, true}},
	{3, "NTFS    ", kind{"NTFS", unread, true}},
	{3, "EXFAT   ", kind{"exFAT", unread, true}},
	{3, "-FVE-FS-", kind{"BitLocker", encrypted, true}},
	{1024, "H+\x00\x04", kind{"HFS+", unread, true}},
	{1024, "HX\x00\x05", kind{"HFS+", unread, true}},
	{0, "LUKS\xba\xbe", kind{"LUKS", encrypted, true}},
	{512, "LABELONE", kind{"LVM", "volumes of LVM cannot be read here", true}},
	{4096, "\xfc\x4e\x2b\xa9", kind{"a RAID", "parts of a RAID cannot be read here", true}},
	{0, "\xfc\x4e\x2b\xa9", kind{"a RAID", "parts of a RAID cannot be read here", true}},
	{0, "hsqs", kind{"SquashFS", unread, true}},
	{1024, "\xe2\xe1\xf5\xe0", kind{"EROFS", unread, true}},
	{1024, "\x10\x20\xf5\xf2", kind{"F2FS", unread, true}},
	{32769, "CD001", kind{formatCD, unread, true}},
	{4086, "SWAPSPACE2", kind{"swap", noFiles, false}},
	{65526, "SWAPSPACE2", kind{"swap", noFiles, false}},
	{4086, "SWAP-SPACE", kind{"swap", noFiles, false}},
	{82, "FAT32   ", kind{"FAT", unread, true}},
	{54, "FAT16   ", kind{"FAT", unread, true}},
	{54, "FAT12   ", kind{"FAT", unread, true}},
}

// types are those of partitions without packages, unless there is a supported file system in them,
// and of others whose content identifies nothing.
var types = map[string]kind{
	"C12A7328-F81F-11D2-BA4B-00A0C93EC93B": {"the EFI system partition", noFiles, false},
	"EF":                                   {"the EFI system partition", noFiles, false},
	"21686148-6449-6E6F-744E-656564454649": {"the BIOS boot partition", noFiles, false},
	"E3C9E316-0B5C-4DB8-817D-F92DF00215AE": {"the Microsoft reserved partition", noFiles, false},
	"DE94BBA4-06D1-4D40-A16A-BFD50179D6AC": {"a Windows recovery partition", noFiles, false},
	"0657FD6D-A4AB-43C4-84E5-0933C84B4F4F": {"swap", noFiles, false},
	"82":                                   {"swap", noFiles, false},
	"9E1A2D38-C612-4316-AA26-8B49521E5A8B": {"the PReP boot partition", noFiles, false},
	"41":                                   {"the PReP boot partition", noFiles, false},
	"426F6F74-0000-11AA-AA11-00306543ECAC": {"the Apple boot partition", noFiles, false},
	"69646961-6700-11AA-AA11-00306543ECAC": {"the Apple system container", noFiles, false},
	"52637672-7900-11AA-AA11-00306543ECAC": {"the Apple recovery container", noFiles, false},
	"53746F72-6167-11AA-AA11-00306543ECAC": {"Core Storage", "volumes of Core Storage cannot be read here", true},
}

// apple are types of containers that only the firmware uses.
var apple = map[string]bool{"69646961-6700-11AA-AA11-00306543ECAC": true, "52637672-7900-11AA-AA11-00306543ECAC": true}

// filled are types of partitions that are made for the files of Linux and macOS. If the beginning
// of one is empty, its content may have been lost.
var filled = map[string]bool{
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
}

// furthest is the number of bytes in which signatures occur.
const furthest = 66 << 10

// detect checks the beginning of a partition and its type.
func detect(r io.ReaderAt, p Partition) (kind, error) {
	typed, known := types[p.Type]
	if known && apple[p.Type] {
		return typed, nil // APFS, but without files of the user
	}
	b := make([]byte, min(furthest, p.Length))
	if err := readAll(r, b, 0); err != nil {
		return typed, err
	}
	for _, m := range marks {
		if end := m.at + int64(len(m.text)); end <= int64(len(b)) && string(b[m.at:end]) == m.text && m.sense(b) {
			if known && m.kind.reason != "" {
				return typed, nil
			}
			return m.kind, nil
		}
	}
	if known {
		return typed, nil
	}
	if len(bytes.TrimLeft(b, "\x00")) == 0 {
		return kind{"empty", "there is nothing at its beginning", filled[p.Type]}, nil
	}
	return kind{formatUnknown, "what it holds is not known here", true}, nil
}

// sense checks further fields of a format with a short signature.
func (m signature) sense(b []byte) bool {
	if m.kind.name == formatExt4 { // the size of a block
		return binary.LittleEndian.Uint32(b[1024+24:]) <= 6
	}
	return true
}
