package xfs

import "sort"

// Form of the log: sectors of 512 bytes, used in a circle. A sector begins with the number of its cycle, or is
// the header of a record, which has that number behind its magic. A file system that was unmounted has a
// record of that alone at the end.
const (
	recordMagic        = 0xfeedbabe
	recordVersion2     = 0x2      // in the version: the header may have several sectors
	recordHeaderBytes  = 32 << 10 // of data, for each of which a header has a sector
	operationUnmount   = 0x20     // in the flags of an operation
	maxRecordSectors   = 2048
	operationFlagsByte = 9
)

// isLogClean reports whether nothing is only in the log. It is false if that cannot be determined.
func (f *FS) isLogClean() bool {
	s := f.superblock
	start, err := s.blockOffset(s.logStart, uint64(s.logBlocks))
	if err != nil || s.logBlocks == 0 {
		return false
	}
	count := int(int64(s.logBlocks) << s.blockLog / sectorBytes)
	sector := func(k int) []byte {
		b, err := f.pages.Get(start+int64(k%count)*sectorBytes, sectorBytes)
		if err != nil {
			return make([]byte, sectorBytes)
		}
		return b
	}
	isRecord := func(b []byte) bool { return be.Uint32(b) == recordMagic }
	cycle := func(k int) uint32 {
		b := sector(k)
		if isRecord(b) {
			return be.Uint32(b[4:])
		}
		return be.Uint32(b)
	}
	// The first sector that was not written in the cycle of the first one is the next to be written.
	first := cycle(0)
	head := sort.Search(count, func(k int) bool { return cycle(k) != first })
	for back := 1; back <= min(maxRecordSectors, count); back++ {
		k := (head + count - back) % count
		b := sector(k)
		if !isRecord(b) {
			continue
		}
		headers, data := 1, be.Uint32(b[12:])
		if size := be.Uint32(b[320:]); be.Uint32(b[8:])&recordVersion2 != 0 && size > recordHeaderBytes {
			headers = int((size + recordHeaderBytes - 1) / recordHeaderBytes)
		}
		end := headers + int((data+sectorBytes-1)/sectorBytes)
		operations, flags := be.Uint32(b[40:]), sector(k + headers)[operationFlagsByte]
		return back == end && operations == 1 && flags&operationUnmount != 0
	}
	return false
}
