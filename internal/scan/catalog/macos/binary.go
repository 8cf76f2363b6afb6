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

var errPlist = errors.New("the property list is damaged")

// binaryList is a binary property list whose sizes match its bytes.
type binaryList struct {
	data    []byte
	objects uint64
	offset  int // bytes of an offset
	ref     int // bytes of a reference
	table   uint64
	visits  int
}

// sane returns an error unless the sizes of a binary property list match its bytes, and it expands
// to a bounded number of objects.
func sane(data []byte) error {
	if len(data) < 8+trailerSize {
		return errPlist
	}
	t := data[len(data)-trailerSize:]
	l := &binaryList{
		data: data, offset: int(t[6]), ref: int(t[7]),
		objects: binary.BigEndian.Uint64(t[8:]), table: binary.BigEndian.Uint64(t[24:]),
	}
	end := uint64(len(data) - trailerSize)
	switch {
	case l.offset < 1 || l.offset > 8 || l.ref < 1 || l.ref > 8:
		return errPlist
	case l.table > end || l.objects == 0 || l.objects > (end-l.table)/uint64(l.offset):
		return errPlist
	}
	return l.visit(binary.BigEndian.Uint64(t[16:]), 0)
}

// number reads a big-endian number of some bytes.
func (l *binaryList) number(at uint64, size int) (uint64, bool) {
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
func (l *binaryList) visit(object uint64, depth int) error {
	l.visits++
	if object >= l.objects || depth > maxDepth || l.visits > maxVisits {
		return errPlist
	}
	at, ok := l.number(l.table+object*uint64(l.offset), l.offset)
	if !ok || at >= l.table {
		return errPlist
	}
	kind := l.data[at] >> 4
	switch kind {
	case 0x4, 0x5, 0x6, 0xa, 0xc, 0xd: // data, text, arrays, sets, dictionaries
	default:
		return nil
	}
	count, start, ok := l.count(at)
	if !ok {
		return errPlist
	}
	each := uint64(1)
	switch kind {
	case 0x6:
		each = 2
	case 0xa, 0xc:
		each = uint64(l.ref)
	case 0xd:
		each = 2 * uint64(l.ref)
	}
	if start > l.table || count > (l.table-start)/each {
		return errPlist
	}
	if kind < 0xa {
		return nil
	}
	for i := range count * each / uint64(l.ref) {
		ref, ok := l.number(start+i*uint64(l.ref), l.ref)
		if !ok {
			return errPlist
		}
		if err := l.visit(ref, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// count reads how many elements an object has, and the offset of the first: in the low half of its
// first byte, or in a number after it.
func (l *binaryList) count(at uint64) (n, start uint64, ok bool) {
	low := uint64(l.data[at] & 0xf)
	if low != 0xf {
		return low, at + 1, true
	}
	head, ok := l.number(at+1, 1)
	if !ok || head>>4 != 1 || head&0xf > 3 {
		return 0, 0, false
	}
	size := 1 << (head & 0xf)
	n, ok = l.number(at+2, size)
	return n, at + 2 + uint64(size), ok
}
