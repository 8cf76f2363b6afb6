package disk

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
)

// Form of an Apple partition map: an entry in each block behind the first one, which may name the size of a block. The
// first entry is that of the map itself.
const (
	appleEntryBytes    = 512
	maxAppleBlockBytes = 4096
	maxApplePartitions = 256
	appleMapType       = "Apple_partition_map"
)

// appleUnused are the types of entries that are not partitions.
var appleUnused = map[string]bool{appleMapType: true, "Apple_Free": true, "Apple_Void": true, "": true}

// readAppleMap reads an Apple partition map, of a disk whose first sector is boot. Disks that other systems start from
// have one next to other tables, with blocks of another size than the first block names.
func readAppleMap(r io.ReaderAt, size int64, boot []byte) ([]Partition, error) {
	blocks := []int64{appleEntryBytes}
	if string(boot[:2]) == "ER" {
		b := int64(binary.BigEndian.Uint16(boot[2:]))
		if b > appleEntryBytes && b <= maxAppleBlockBytes && b&(b-1) == 0 {
			blocks = []int64{b, appleEntryBytes}
		}
	}
	for _, block := range blocks {
		e, err := readAppleEntry(r, block)
		if err == nil && e.kind == appleMapType {
			return readAppleEntries(r, size, block, e.entries)
		}
	}
	return nil, errNoTable
}

// appleEntry is an entry of an Apple partition map; offsets are in blocks.
type appleEntry struct {
	entries      uint32 // of the map
	start, count int64
	name, kind   string
}

// readAppleEntry reads the entry at an offset, or returns errNoTable.
func readAppleEntry(r io.ReaderAt, at int64) (e appleEntry, err error) {
	var b [appleEntryBytes]byte
	if err := readFullAt(r, b[:], at); err != nil {
		return e, err
	}
	if string(b[:2]) != "PM" {
		return e, errNoTable
	}
	be := binary.BigEndian
	text := func(b []byte) string {
		b, _, _ = bytes.Cut(b, []byte{0})
		return stripControl(strings.ToValidUTF8(string(b), ""))
	}
	return appleEntry{
		be.Uint32(b[4:]), int64(be.Uint32(b[8:])), int64(be.Uint32(b[12:])), text(b[16:48]), text(b[48:80]),
	}, nil
}

func readAppleEntries(r io.ReaderAt, size, block int64, count uint32) ([]Partition, error) {
	if count < 1 || count > maxApplePartitions {
		return nil, damaged("its Apple partition map has %d entries", count)
	}
	list := []Partition{}
	for k := range int64(count) {
		e, err := readAppleEntry(r, (k+1)*block)
		if err != nil {
			return nil, damaged("its Apple partition map ends after %d of %d entries: %v", k, count, err)
		}
		if appleUnused[e.kind] {
			continue
		}
		p := Partition{Index: int(k) + 1, Type: e.kind, Name: e.name, Start: e.start * block, Length: e.count * block}
		list = append(list, p.clipTo(size))
	}
	return list, nil
}
