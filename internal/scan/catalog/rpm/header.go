package rpm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Tags of a header, and types of their values (rpm: docs/manual/format_header.md and include/rpm/rpmtag.h).
const (
	tagName       = 1000
	tagVersion    = 1001
	tagRelease    = 1002
	tagEpoch      = 1003
	tagLicense    = 1014
	tagArch       = 1022
	tagFileStates = 1029
	tagSourceRPM  = 1044
	tagDirIndexes = 1116
	tagBaseNames  = 1117
	tagDirNames   = 1118

	typeChar        = 1
	typeInt32       = 4
	typeString      = 6
	typeStringArray = 8
	typeI18NString  = 9

	firstTag, lastTag = tagName, tagDirNames

	maxEntries     = 0xffff
	indexEntrySize = 16
	maxTextBytes   = 4096
	maxFiles       = 4 << 20
)

var errHeader = errors.New("its index does not fit its size")

// header is the description of a package: an index of values and their bytes. All numbers are big-endian.
type header struct {
	data    []byte
	entries map[uint32]entry // that are used
}

// entry is a value of the index.
type entry struct {
	kind, offset, count uint32
}

// parseHeader reads the index of a header, as databases have it: without the magic bytes of package files.
func parseHeader(blob []byte) (*header, error) {
	if len(blob) < 8 {
		return nil, fmt.Errorf("%w: %d bytes", errHeader, len(blob))
	}
	count, size := uint64(binary.BigEndian.Uint32(blob)), uint64(binary.BigEndian.Uint32(blob[4:]))
	blob = blob[8:]
	if count > maxEntries || count*indexEntrySize+size > uint64(len(blob)) {
		return nil, fmt.Errorf("%w: %d values and %d bytes in %d", errHeader, count, size, len(blob))
	}
	index := blob[:count*indexEntrySize]
	h := &header{data: blob[len(index):][:size], entries: make(map[uint32]entry, 16)}
	for ; len(index) > 0; index = index[indexEntrySize:] {
		tag := binary.BigEndian.Uint32(index)
		if tag < firstTag || tag > lastTag {
			continue
		}
		switch tag {
		case tagName, tagVersion, tagRelease, tagEpoch, tagLicense, tagArch, tagFileStates, tagSourceRPM, tagDirIndexes,
			tagBaseNames, tagDirNames:
		default:
			continue
		}
		e := entry{
			kind: binary.BigEndian.Uint32(index[4:]), offset: binary.BigEndian.Uint32(index[8:]),
			count: binary.BigEndian.Uint32(index[12:]),
		}
		if uint64(e.offset) > size {
			return nil, fmt.Errorf("%w: value %d begins at %d of %d bytes", errHeader, tag, e.offset, size)
		}
		h.entries[tag] = e
	}
	return h, nil
}

// value returns a value of one of some types, and the bytes from its beginning.
func (h *header) value(tag uint32, kinds ...uint32) (e entry, data []byte) {
	e, ok := h.entries[tag]
	for _, k := range kinds {
		if ok && e.kind == k {
			return e, h.data[e.offset:]
		}
	}
	return entry{}, nil
}

// text returns a text; "" when there is none, or one that is too long.
func (h *header) text(tag uint32) string {
	e, data := h.value(tag, typeString, typeStringArray, typeI18NString)
	if n := bytes.IndexByte(data[:min(len(data), maxTextBytes)], 0); n > 0 && e.count > 0 {
		return string(data[:n])
	}
	return ""
}

// number returns the first of the numbers of a value.
func (h *header) number(tag uint32) (uint32, bool) {
	e, data := h.value(tag, typeInt32)
	if e.count == 0 || len(data) < 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(data), true
}

// eachFile calls do for the installed files of the package: with their directories, which end with a slash, and
// their names. It ends at the first file that the header has only in part.
func (h *header) eachFile(do func(dir, base []byte)) {
	dirs := h.dirNames()
	_, indexes := h.value(tagDirIndexes, typeInt32)
	names, data := h.value(tagBaseNames, typeStringArray)
	states, state := h.value(tagFileStates, typeChar)
	for i := range min(names.count, maxFiles) {
		end := bytes.IndexByte(data, 0)
		if end < 0 || len(indexes) < 4 {
			return
		}
		dir := binary.BigEndian.Uint32(indexes)
		if uint64(dir) >= uint64(len(dirs)) {
			return
		}
		if i >= states.count || uint64(i) >= uint64(len(state)) || state[i] == 0 { // others were replaced or left out
			do(dirs[dir], data[:end])
		}
		data, indexes = data[end+1:], indexes[4:]
	}
}

// dirNames returns the directories of files.
func (h *header) dirNames() [][]byte {
	e, data := h.value(tagDirNames, typeStringArray)
	var out [][]byte
	for range min(e.count, maxFiles) {
		end := bytes.IndexByte(data, 0)
		if end < 0 {
			break
		}
		out = append(out, data[:end])
		data = data[end+1:]
	}
	return out
}
