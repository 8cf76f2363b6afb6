package macos

import (
	"encoding/binary"
	"errors"
)

// trailerSize is the size of the end of a binary property list: six unused bytes, the sizes of an
// offset and of a reference, and the counts of objects, the top one and the offset of their
// offsets.
const trailerSize = 32

// maxVisits limits how many objects a list expands to: an object that is referred to twice is read
// twice, so that a few bytes can expand to very many.
const maxVisits = 100_000

var errDamagedPlist = errors.New("the property list is damaged")

// binaryPlist is a binary property list whose sizes match its bytes.
type binaryPlist struct {
	data        []byte
	objectCount uint64
	offsetSize  int // bytes of an offset
	refSize     int // bytes of a reference
	tableOffset uint64
	visits      int
}

// checkBinaryPlist returns an error unless the sizes of a binary property list match its bytes, and it expands
// to a bounded number of objects.
func checkBinaryPlist(data []byte) error {
	if len(data) < 8+trailerSize {
		return errDamagedPlist
	}
	t := data[len(data)-trailerSize:]
	l := &binaryPlist{
		data: data, offsetSize: int(t[6]), refSize: int(t[7]),
		objectCount: binary.BigEndian.Uint64(t[8:]), tableOffset: binary.BigEndian.Uint64(t[24:]),
	}
	end := uint64(len(data) - trailerSize)
	switch {
	case l.offsetSize < 1 || l.offsetSize > 8 || l.refSize < 1 || l.refSize > 8:
		return errDamagedPlist
	case l.tableOffset > end || l.objectCount == 0 || l.objectCount > (end-l.tableOffset)/uint64(l.offsetSize):
		return errDamagedPlist
	}
	return l.visit(binary.BigEndian.Uint64(t[16:]), 0)
}

// readNumber reads a big-endian number of some bytes.
func (l *binaryPlist) readNumber(at uint64, size int) (uint64, bool) {
	if at > uint64(len(l.data)) || uint64(size) > uint64(len(l.data))-at {
		return 0, false
	}
	var n uint64
	for _, b := range l.data[at : at+uint64(size)] {
		n = n<<8 | uint64(b)
	}
	return n, true
}

// visit follows an object to all objects in it.
func (l *binaryPlist) visit(object uint64, depth int) error {
	l.visits++
	if object >= l.objectCount || depth > maxDepth || l.visits > maxVisits {
		return errDamagedPlist
	}
	at, ok := l.readNumber(l.tableOffset+object*uint64(l.offsetSize), l.offsetSize)
	if !ok || at >= l.tableOffset {
		return errDamagedPlist
	}
	kind := l.data[at] >> 4
	switch kind {
	case 0x4, 0x5, 0x6, 0xa, 0xc, 0xd: // data, text, arrays, sets, dictionaries
	default:
		return nil
	}
	count, start, ok := l.readCount(at)
	if !ok {
		return errDamagedPlist
	}
	each := uint64(1)
	switch kind {
	case 0x6:
		each = 2
	case 0xa, 0xc:
		each = uint64(l.refSize)
	case 0xd:
		each = 2 * uint64(l.refSize)
	}
	if start > l.tableOffset || count > (l.tableOffset-start)/each {
		return errDamagedPlist
	}
	if kind < 0xa {
		return nil
	}
	for i := range count * each / uint64(l.refSize) {
		ref, ok := l.readNumber(start+i*uint64(l.refSize), l.refSize)
		if !ok {
			return errDamagedPlist
		}
		if err := l.visit(ref, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// readCount reads how many elements an object has, and the offset of the first: in the low half of its
// first byte, or in a number after it.
func (l *binaryPlist) readCount(at uint64) (n, start uint64, ok bool) {
	low := uint64(l.data[at] & 0xf)
	if low != 0xf {
		return low, at + 1, true
	}
	head, ok := l.readNumber(at+1, 1)
	if !ok || head>>4 != 1 || head&0xf > 3 {
		return 0, 0, false
	}
	size := 1 << (head & 0xf)
	n, ok = l.readNumber(at+2, size)
	return n, at + 2 + uint64(size), ok
}
