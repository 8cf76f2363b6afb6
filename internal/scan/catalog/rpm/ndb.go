package rpm

import (
	"encoding/binary"
	"fmt"
)

// The form ndb (rpm: lib/backend/ndb/rpmpkg.c): pages of slots, each of which has the place of a header in blocks.
// All numbers are little-endian.
const (
	ndbMagic     = "RpmP"
	ndbSlotMagic = "Slot"
	ndbBlobMagic = "BlbS"

	ndbPageSize   = 4096
	ndbHeaderSize = 32 // at the beginning of the first page
	ndbSlotSize   = 16
	ndbBlockSize  = 16
	ndbBlobHead   = 16
	ndbBlobTail   = 12
)

func isNDB(start []byte) bool { return string(start[:4]) == ndbMagic }

// eachNDB calls do for every header.
func eachNDB(r *blobReader, do func([]byte) error) error {
	first, err := r.page(0, ndbHeaderSize)
	if err != nil {
		return err
	}
	if version := binary.LittleEndian.Uint32(first[4:]); version != 0 {
		return fmt.Errorf("version %d of the form ndb is not supported", version)
	}
	pages := int64(binary.LittleEndian.Uint32(first[12:]))
	if pages > r.size/ndbPageSize {
		return fmt.Errorf("%w: %d pages of slots in %d bytes", errCutOff, pages, r.size)
	}
	slots := make([]byte, ndbPageSize)
	for n := range pages {
		page, err := r.page(n*ndbPageSize, ndbPageSize)
		if err != nil {
			return err
		}
		copy(slots, page)
		start := 0
		if n == 0 {
			start = ndbHeaderSize
		}
		for at := start; at < ndbPageSize; at += ndbSlotSize {
			if err := readNDBSlot(r, slots[at:at+ndbSlotSize], do); err != nil {
				return err
			}
		}
	}
	return nil
}

// readNDBSlot reads the header of a slot, if it has one.
func readNDBSlot(r *blobReader, slot []byte, do func([]byte) error) error {
	if string(slot[:4]) != ndbSlotMagic {
		return fmt.Errorf("%w: a slot does not begin with %q", errDamaged, ndbSlotMagic)
	}
	index, block := binary.LittleEndian.Uint32(slot[4:]), binary.LittleEndian.Uint32(slot[8:])
	if block == 0 {
		return nil // free
	}
	off := int64(block) * ndbBlockSize
	head, err := r.page(off, ndbBlobHead)
	if err != nil {
		return err
	}
	size := int64(binary.LittleEndian.Uint32(head[12:]))
	blocks := (ndbBlobHead + size + ndbBlobTail + ndbBlockSize - 1) / ndbBlockSize
	if string(head[:4]) != ndbBlobMagic || binary.LittleEndian.Uint32(head[4:]) != index ||
		int64(binary.LittleEndian.Uint32(slot[12:])) != blocks {
		return fmt.Errorf("%w: the header of package %d is not where its slot says", errDamaged, index)
	}
	if err := r.begin(size); err != nil {
		return err
	}
	for off += ndbBlobHead; size > 0; {
		part, err := r.page(off, int(min(size, ndbPageSize)))
		if err != nil {
			return err
		}
		r.blob = append(r.blob, part...)
		off, size = off+int64(len(part)), size-int64(len(part))
	}
	return do(r.blob)
}
