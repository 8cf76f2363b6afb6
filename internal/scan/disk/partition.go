package disk

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"unicode/utf16"
)

// Partition is a part of a disk.
type Partition struct {
	Index  int    // from 1 in the order of the table; 0 = the whole disk, which has no table
	Type   string // of GPT: a GUID in capitals; of MBR: two hexadecimal digits; of Apple: a name; "" without a table
	Name   string // of GPT and Apple, may be ""
	Start  int64  // byte of the disk
	Length int64  // bytes
	Err    error  // why some of its logical partitions are unknown; nil = all are known, or it has none
}

func (p Partition) end() int64 { return p.Start + p.Length }

// Limits on what is read of tables.
const (
	minGPTHeaderBytes    = 92 // minimum bytes
	gptEntryBytes        = 128
	maxGPTEntryBytes     = 4096
	maxPartitions        = 1024
	maxGPTTableBytes     = maxPartitions * gptEntryBytes
	maxLogicalPartitions = 128
	mbrSectorBytes       = 512
)

// Types of entries of an MBR.
const (
	mbrProtective = 0xee
	mbrExtended   = 0x05
	mbrExtendedLB = 0x0f
	mbrLinuxExt   = 0x85
)

// Partitions reads the partition table of a disk: GPT, its copy at the end where the first is
// damaged, an Apple partition map, or MBR. A disk without one is one partition. A partition that exceeds the end of the
// disk is cut off there; one of which nothing is left is damaged.
func Partitions(r io.ReaderAt, size int64) ([]Partition, error) {
	var boot [mbrSectorBytes]byte
	if err := readFullAt(r, boot[:], 0); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return []Partition{{Length: size}}, nil
		}
		return nil, err
	}
	protective := boot[510] == 0x55 && boot[511] == 0xaa &&
		slices.ContainsFunc([]int{0, 1, 2, 3}, func(k int) bool { return boot[446+16*k+4] == mbrProtective })
	list, err := readGPT(r, size)
	switch {
	case err == nil:
		return list, nil
	case !errors.Is(err, errNoTable):
		return nil, err
	case protective:
		return nil, damaged("it says to have a partition table of GPT and has none")
	}
	if list, err := readAppleMap(r, size, boot[:]); !errors.Is(err, errNoTable) {
		return list, err
	}
	if list, ok := readMBR(r, size, boot[:]); ok {
		return list, nil
	}
	return []Partition{{Length: size}}, nil
}

// errNoTable reports that no part of a GPT was found.
var errNoTable = errors.New("partition table not found")

// readGPT looks for the table after the first sector, and for its copy in the last one. It tries
// several sector sizes, since no field has the size.
func readGPT(r io.ReaderAt, size int64) ([]Partition, error) {
	worst := errNoTable
	for _, sector := range []int64{512, 4096} {
		for _, at := range []int64{sector, size/sector*sector - sector} {
			list, err := readGPTHeader(r, size, at, sector)
			if err == nil {
				return list, nil
			}
			if !errors.Is(err, errNoTable) {
				worst = err
			}
		}
	}
	return nil, worst
}

func readGPTHeader(r io.ReaderAt, size, at, sector int64) ([]Partition, error) {
	if at < sector || at > size-sector {
		return nil, errNoTable
	}
	b := make([]byte, sector)
	if err := readFullAt(r, b, at); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(b, []byte("EFI PART")) {
		return nil, errNoTable
	}
	le := binary.LittleEndian
	length, want := int64(le.Uint32(b[12:])), le.Uint32(b[16:])
	clear(b[16:20])
	if length < minGPTHeaderBytes || length > sector || crc32.ChecksumIEEE(b[:length]) != want ||
		le.Uint64(b[24:]) != uint64(at/sector) {
		return nil, damaged("the header of its partition table is not what its checksum says")
	}
	table, count, entry := le.Uint64(b[72:]), int64(le.Uint32(b[80:])), int64(le.Uint32(b[84:]))
	switch {
	case entry < gptEntryBytes || entry > maxGPTEntryBytes || entry&(entry-1) != 0 || count > maxPartitions ||
		count*entry > maxGPTTableBytes*4:
		return nil, damaged("its partition table has %d entries of %d bytes", count, entry)
	case table > uint64(size/sector) || int64(table)*sector > size-count*entry:
		return nil, damaged("its partition table is past its end")
	}
	entries := make([]byte, count*entry)
	if err := readFullAt(r, entries, int64(table)*sector); err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(entries) != le.Uint32(b[88:]) {
		return nil, damaged("its partition table is not what its checksum says")
	}
	return readGPTEntries(entries, entry, sector, size)
}

func readGPTEntries(b []byte, entry, sector, size int64) ([]Partition, error) {
	le := binary.LittleEndian
	list := []Partition{}
	for k := int64(0); k*entry < int64(len(b)); k++ {
		e := b[k*entry : (k+1)*entry]
		if kind := formatGUID(e); kind != zeroGUID {
			first, last := le.Uint64(e[32:]), le.Uint64(e[40:])
			if last < first || last > 1<<62/uint64(sector) {
				return nil, damaged("its partition %d reaches from sector %d to %d", k+1, first, last)
			}
			p := Partition{Index: int(k) + 1, Type: kind, Name: utf16Text(e[56:128]), Start: int64(first) * sector}
			p.Length = (int64(last)+1)*sector - p.Start
			list = append(list, p.clipTo(size))
		}
	}
	return list, nil
}

// clipTo ends a partition at the end of the disk. One that begins after it becomes empty.
func (p Partition) clipTo(size int64) Partition {
	p.Start = min(p.Start, size)
	p.Length = min(p.Length, size-p.Start)
	return p
}

const zeroGUID = "00000000-0000-0000-0000-000000000000"

// formatGUID formats a GUID, whose first three groups are little-endian.
func formatGUID(b []byte) string {
	le := binary.LittleEndian
	return fmt.Sprintf("%08X-%04X-%04X-%X-%X", le.Uint32(b), le.Uint16(b[4:]), le.Uint16(b[6:]), b[8:10], b[10:16])
}

func utf16Text(b []byte) string {
	units := make([]uint16, 0, len(b)/2)
	for ; len(b) >= 2; b = b[2:] {
		u := binary.LittleEndian.Uint16(b)
		if u == 0 {
			break
		}
		units = append(units, u)
	}
	return stripControl(string(utf16.Decode(units)))
}

// stripControl removes terminal control characters.
func stripControl(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\ufffd' {
			return -1
		}
		return r
	}, s)
}

// readMBR reads the table of the first sector. The boot sector of a file system has the same
// signature at its end: its content must be valid as a table.
func readMBR(r io.ReaderAt, size int64, boot []byte) ([]Partition, bool) {
	if boot[510] != 0x55 || boot[511] != 0xaa {
		return nil, false
	}
	m := mbrReader{r: r}
	cut := false
	for k := range 4 {
		e := parseMBREntry(boot[446+16*k:])
		if e.partitionType == 0 || e.sectorCount == 0 {
			continue
		}
		if e.bootFlag&0x7f != 0 || e.startSector == 0 {
			return nil, false
		}
		p := e.toPartition(k+1, 0)
		cut = cut || p.Start >= size
		if isExtended(e.partitionType) {
			if p.Length, p.Err = 0, m.readLogical(p.Start); p.Err == nil {
				continue
			}
		}
		m.partitions = append(m.partitions, p)
	}
	sorted := slices.DeleteFunc(slices.Clone(m.partitions), func(p Partition) bool { return p.Err != nil })
	slices.SortFunc(sorted, func(a, b Partition) int { return cmp.Compare(a.Start, b.Start) })
	for k := 1; k < len(sorted); k++ {
		if sorted[k].Start < sorted[k-1].end() {
			return nil, false
		}
	}
	slices.SortFunc(m.partitions, func(a, b Partition) int { return cmp.Compare(a.Index, b.Index) })
	if cut && hasFileSystem(r, size) {
		return nil, false
	}
	known := false
	for k, p := range m.partitions {
		m.partitions[k] = p.clipTo(size)
		known = known || m.partitions[k].Length > 0
	}
	return m.partitions, known
}

// hasFileSystem reports whether a disk itself begins with the signature of a file system.
func hasFileSystem(r io.ReaderAt, size int64) bool {
	k, err := detectKind(r, Partition{Length: size})
	return err == nil && k.name != formatUnknown
}

type mbrReader struct {
	r          io.ReaderAt
	partitions []Partition
}

// mbrEntry is an entry of a table; offsets are in sectors.
type mbrEntry struct {
	bootFlag, partitionType  byte
	startSector, sectorCount int64
}

func parseMBREntry(b []byte) mbrEntry {
	le := binary.LittleEndian
	return mbrEntry{b[0], b[4], int64(le.Uint32(b[8:])), int64(le.Uint32(b[12:]))}
}

func isExtended(kind byte) bool {
	return kind == mbrExtended || kind == mbrExtendedLB || kind == mbrLinuxExt
}

func (e mbrEntry) toPartition(index int, from int64) Partition {
	return Partition{Index: index, Type: fmt.Sprintf("%02X", e.partitionType), Start: from +
		e.startSector*mbrSectorBytes, Length: e.sectorCount * mbrSectorBytes}
}

// readLogical follows the list of tables in an extended partition, each of which has one partition and
// the offset of the next table. Its error names the sector where the list breaks off.
func (m *mbrReader) readLogical(first int64) error {
	at, index := first, 5
	for range maxLogicalPartitions {
		var b [mbrSectorBytes]byte
		if err := readFullAt(m.r, b[:], at); err != nil {
			return fmt.Errorf("reading the partition table failed at sector %d: %w", at/mbrSectorBytes, err)
		}
		if b[510] != 0x55 || b[511] != 0xaa {
			return damaged("its partition list is cut off at sector %d, which is not a table", at/mbrSectorBytes)
		}
		if e := parseMBREntry(b[446:]); e.partitionType != 0 && e.sectorCount > 0 && e.startSector > 0 {
			m.partitions = append(m.partitions, e.toPartition(index, at))
			index++
		}
		next := parseMBREntry(b[462:])
		if !isExtended(next.partitionType) || next.startSector == 0 {
			return nil
		}
		to := first + next.startSector*mbrSectorBytes
		if to <= at { // tables must ascend: a list that goes back would not end
			return damaged("its list of partitions goes back from sector %d to %d", at/mbrSectorBytes,
				to/mbrSectorBytes)
		}
		at = to
	}
	return damaged("its list of partitions has more than %d tables", maxLogicalPartitions)
}

// readFullAt reads all of p.
func readFullAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}
