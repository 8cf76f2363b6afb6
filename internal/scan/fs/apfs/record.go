package apfs

import (
	"bytes"
	"cmp"
	"time"
)

// Kinds of records of a volume's tree.
const (
	recordSnapshot = 1
	recordInode    = 3
	recordXattr    = 4
	recordExtent   = 8
	recordEntry    = 9
)

const (
	idMask         = 1<<60 - 1
	kindShift      = 60
	hashShift      = 10
	nameLengthMask = 1<<hashShift - 1
)

// recordKey is the key of a record of a volume's tree, with the parts that decide its position:
// number, kind, then a number (the hash of a name, or an offset in a file), then a name.
type recordKey struct {
	id           uint64
	kind         uint8
	hashedNames  bool   // names of directories are stored after a hash of them
	hashOrOffset uint64 // of recordExtent, and of recordEntry where hashed
	name         string // of recordXattr and recordEntry
}

// parseRecordKey reads number and kind only.
func parseRecordKey(b []byte) (recordKey, bool) {
	if len(b) < 8 {
		return recordKey{}, false
	}
	v := le.Uint64(b)
	return recordKey{id: v & idMask, kind: uint8(v >> kindShift)}, true
}

// compare compares keys of a volume's tree. One that is too short comes first.
func (k recordKey) compare(b []byte) int {
	have, ok := parseRecordKey(b)
	if !ok {
		return -1
	}
	if have.id != k.id {
		return cmp.Compare(have.id, k.id)
	}
	if have.kind != k.kind {
		return cmp.Compare(have.kind, k.kind)
	}
	switch k.kind {
	case recordExtent:
		return uintKey(k.hashOrOffset).compare(b[8:])
	case recordEntry, recordXattr:
		num, name := nameInKey(b, k.kind == recordEntry && k.hashedNames)
		if num != k.hashOrOffset {
			return cmp.Compare(num, k.hashOrOffset)
		}
		return cmp.Compare(string(name), k.name)
	}
	return 0
}

// nameInKey returns the name in a key, and the number before it where names are hashed.
func nameInKey(b []byte, hashed bool) (num uint64, name []byte) {
	head := 10
	if hashed {
		head = 12
	}
	if len(b) < head {
		return 0, nil
	}
	length := int(le.Uint16(b[8:]))
	if hashed {
		num = uint64(le.Uint32(b[8:]))
		length = int(num & nameLengthMask)
	}
	name = b[head:]
	name = name[:min(length, len(name))]
	return num, bytes.TrimSuffix(name, []byte{0})
}

// toTime converts nanoseconds since 1970 to a time.
func toTime(ns uint64) time.Time { return time.Unix(0, int64(ns)).UTC() }
