package disktest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"unicode/utf16"
)

// Types of partitions.
const (
	Linux = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
	APFS  = "7C3457EF-0000-11AA-AA11-00306543ECAC"
	EFI   = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
	Swap  = "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"
)

// Part is a partition to write; Start and Length are in bytes.
type Part struct {
	Type, Name    string
	Start, Length int64
}

const (
	entries   = 128
	entrySize = 128
)

// WriteGPT writes a table and its copy at the end to a disk of size bytes.
func WriteGPT(w io.WriterAt, size, sector int64, parts ...Part) error {
	table := make([]byte, entries*entrySize)
	for k, p := range parts {
		if err := p.encode(table[k*entrySize:], sector); err != nil {
			return err
		}
	}
	last := size/sector - 1
	length := int64(len(table)) / sector
	mbr := make([]byte, 512)
	mbr[446+4], mbr[510], mbr[511] = 0xee, 0x55, 0xaa
	binary.LittleEndian.PutUint32(mbr[446+8:], 1)
	binary.LittleEndian.PutUint32(mbr[446+12:], uint32(min(last, 1<<32-1)))
	for _, b := range []struct {
		b  []byte
		at int64
	}{
		{mbr, 0},
		{header(table, 1, last, 2, sector), sector},
		{table, 2 * sector},
		{table, (last - length) * sector},
		{header(table, last, 1, last-length, sector), last * sector},
	} {
		if _, err := w.WriteAt(b.b, b.at); err != nil {
			return err
		}
	}
	return nil
}

func header(table []byte, here, other, at, sector int64) []byte {
	b := make([]byte, sector)
	copy(b, "EFI PART")
	le := binary.LittleEndian
	le.PutUint32(b[8:], 0x10000)
	le.PutUint32(b[12:], 92)
	le.PutUint64(b[24:], uint64(here))
	le.PutUint64(b[32:], uint64(other))
	le.PutUint64(b[72:], uint64(at))
	le.PutUint32(b[80:], entries)
	le.PutUint32(b[84:], entrySize)
	le.PutUint32(b[88:], crc32.ChecksumIEEE(table))
	le.PutUint32(b[16:], crc32.ChecksumIEEE(b[:92]))
	return b
}

func (p Part) encode(b []byte, sector int64) error {
	var a uint32
	var c, d uint16
	var e, f uint64
	if _, err := fmt.Sscanf(p.Type, "%08X-%04X-%04X-%04X-%012X", &a, &c, &d, &e, &f); err != nil {
		return fmt.Errorf("type %q: %w", p.Type, err)
	}
	le := binary.LittleEndian
	le.PutUint32(b, a)
	le.PutUint16(b[4:], c)
	le.PutUint16(b[6:], d)
	binary.BigEndian.PutUint64(b[8:], e<<48|f)
	b[16] = byte(p.Start / sector) // its own GUID is arbitrary
	le.PutUint64(b[32:], uint64(p.Start/sector))
	le.PutUint64(b[40:], uint64((p.Start+p.Length)/sector-1))
	for k, u := range utf16.Encode([]rune(p.Name)) {
		le.PutUint16(b[56+2*k:], u)
	}
	return nil
}
