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
	Type   string // of GPT: a GUID in capitals; of MBR: two hexadecimal digits; "" without a table
	Name   string // of GPT, may be ""
	Start  int64  // byte of the disk
	Length int64  // bytes
	Err    error  // why some of its logical partitions are unknown; nil = all are known, or it has none
}

func (p Partition) end() int64 { return p.Start + p.Length }

// Limits on what is read of tables.
const (
	gptHeader     = 92 // minimum bytes
	gptEntry      = 128
	maxGPTEntry   = 4096
	maxPartitions = 1024
	maxGPTTable   = maxPartitions * gptEntry
	maxLogical    = 128
	sectorMBR     = 512
)

// Types of entries of an MBR.
const (
	mbrProtective = 0xee
	mbrExtended   = 0x05
	mbrExtendedLB = 0x0f
	mbrLinuxExt   = 0x85
)

// Partitions reads the partition table of a disk: GPT, its copy at the end where the first is
// damaged, or MBR. A disk without one is one partition. A partition that exceeds the end of the
// disk is cut off there; one of which nothing is left is damaged.
func Partitions(r io.ReaderAt, size int64) ([]Partition, error) {
	var boot [sectorMBR]byte
	if err := readAll(r, boot[:], 0); err != nil {
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
			list, err := readHeader(r, size, at, sector)
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

func readHeader(r io.ReaderAt, size, at, sector int64) ([]Partition, error) {
	if at < sector || at > size-sector {
		return nil, errNoTable
	}
	b := make([]byte, sector)
	if err := readAll(r, b, at); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(b, []byte("EFI PART")) {
		return nil, errNoTable
	}
	le := binary.LittleEndian
	length, want := int64(le.Uint32(b[12:])), le.Uint32(b[16:])
	clear(b[16:20])
	if length < gptHeader || length > sector || crc32.ChecksumIEEE(b[:length]) != want ||
		le.Uint64(b[24:]) != uint64(at/sector) {
		return nil, damaged("the header of its partition table is not what its checksum says")
	}
	table, count, entry := le.Uint64(b[72:]), int64(le.Uint32(b[80:])), int64(le.Uint32(b[84:]))
	switch {
	case entry < gptEntry || entry > maxGPTEntry || entry&(entry-1) != 0 || count > maxPartitions ||
		count*entry > maxGPTTable*4:
		return nil, damaged("its partition table has %d entries of %d bytes", count, entry)
	case table > uint64(size/sector) || int64(table)*sector > size-count*entry:
		return nil, damaged("its partition table is past its end")
	}
	entries := make([]byte, count*entry)
	if err := readAll(r, entries, int64(table)*sector); err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(entries) != le.Uint32(b[88:]) {
		return nil, damaged("its partition table is not what its checksum says")
	}
	return readEntries(entries, entry, sector, size)
}

func readEntries(b []byte, entry, sector, size int64) ([]Partition, error) {
	le := binary.LittleEndian
	list := []Partition{}
	for k := int64(0); k*entry < int64(len(b)); k++ {
		e := b[k*entry : (k+1)*entry]
		if kind := guid(e); kind != noGUID {
			first, last := le.Uint64(e[32:]), le.Uint64(e[40:])
			if last < first || last > 1<<62/uint64(sector) {
				return nil, damaged("its partition %d reaches from sector %d to %d", k+1, first, last)
			}
			p := Partition{Index: int(k) + 1, Type: kind, Name: utf16Text(e[56:128]), Start: int64(first) * sector}
			p.Length = (int64(last)+1)*sector - p.Start
			list = append(list, p.cut(size))
		}
	}
	return list, nil
}

// cut ends a partition at the end of the disk. One that begins after it becomes empty.
func (p Partition) cut(size int64) Partition {
	p.Start = min(p.Start, size)
	p.Length = min(p.Length, size-p.Start)
	return p
}

const noGUID = "00000000-0000-0000-0000-000000000000"

// guid formats a GUID, whose first three groups are little-endian.
func guid(b []byte) string {
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
	return plain(string(utf16.Decode(units)))
}

// plain removes terminal control characters.
func plain(s string) string {
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
	m := mbr{r: r}
	cut := false
	for k := range 4 {
		e := readEntry(boot[446+16*k:])
		if e.kind == 0 || e.sectors == 0 {
			continue
		}
		if e.flag&0x7f != 0 || e.start == 0 {
			return nil, false
		}
		p := e.partition(k+1, 0)
		cut = cut || p.Start >= size
		if extended(e.kind) {
			if p.Length, p.Err = 0, m.logical(p.Start); p.Err == nil {
				continue
			}
		}
		m.list = append(m.list, p)
	}
	sorted := slices.DeleteFunc(slices.Clone(m.list), func(p Partition) bool { return p.Err != nil })
	slices.SortFunc(sorted, func(a, b Partition) int { return cmp.Compare(a.Start, b.Start) })
	for k := 1; k < len(sorted); k++ {
		if sorted[k].Start < sorted[k-1].end() {
			return nil, false
		}
	}
	slices.SortFunc(m.list, func(a, b Partition) int { return cmp.Compare(a.Index, b.Index) })
	if cut && fileSystem(r, size) {
		return nil, false
	}
	known := false
	for k, p := range m.list {
		m.list[k] = p.cut(size)
		known = known || m.list[k].Length > 0
	}
	return m.list, known
}

// fileSystem reports whether a disk itself begins with the signature of a file system.
func fileSystem(r io.ReaderAt, size int64) bool {
	k, err := detect(r, Partition{Length: size})
	return err == nil && k.name != formatUnknown
}

type mbr struct {
	r    io.ReaderAt
	list []Partition
}

// mbrEntry is an entry of a table; offsets are in sectors.
type mbrEntry struct {
	flag, kind     byte
	start, sectors int64
}

func readEntry(b []byte) mbrEntry {
	le := binary.LittleEndian
	return mbrEntry{b[0], b[4], int64(le.Uint32(b[8:])), int64(le.Uint32(b[12:]))}
}

func extended(kind byte) bool {
	return kind == mbrExtended || kind == mbrExtendedLB || kind == mbrLinuxExt
}

func (e mbrEntry) partition(index int, from int64) Partition {
	return Partition{Index: index, Type: fmt.Sprintf("%02X", e.kind), Start: from +
		e.start*sectorMBR, Length: e.sectors * sectorMBR}
}

// logical follows the list of tables in an extended partition, each of which has one partition and
// the offset of the next table. Its error names the sector where the list breaks off.
func (m *mbr) logical(first int64) error {
	at, index := first, 5
	for range maxLogical {
		var b [sectorMBR]byte
		if err := readAll(m.r, b[:], at); err != nil {
			return fmt.Errorf("its list of partitions breaks off at sector %d: %w", at/sectorMBR, err)
		}
		if b[510] != 0x55 || b[511] != 0xaa {
			return damaged("its partition list is cut off at sector %d, which is not a table", at/sectorMBR)
		}
		if e := readEntry(b[446:]); e.kind != 0 && e.sectors > 0 && e.start > 0 {
			m.list = append(m.list, e.partition(index, at))
			index++
		}
		next := readEntry(b[462:])
		if !extended(next.kind) || next.start == 0 {
			return nil
		}
		to := first + next.start*sectorMBR
		if to <= at { // tables must ascend: a list that goes back would not end
			return damaged("its list of partitions goes back from sector %d to %d", at/sectorMBR, to/sectorMBR)
		}
		at = to
	}
	return damaged("its list of partitions has more than %d tables", maxLogical)
}

// readAll reads all of p.
func readAll(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}
