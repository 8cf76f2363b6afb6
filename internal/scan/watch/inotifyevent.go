package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// inoEventHeaderSize is the fixed part of an inotify event: watch, mask, cookie, length of the name.
const inoEventHeaderSize = 16

// inoEvent is a kernel event in a watched directory.
type inoEvent struct {
	watchID int32
	mask    uint32
	name    string // empty for the directory itself
}

var errInvalidInoEvent = errors.New("invalid inotify event")

// nextInoEvent decodes one event of a buffer.
func nextInoEvent(buf []byte) (e inoEvent, rest []byte, err error) {
	if len(buf) < inoEventHeaderSize {
		return e, nil, errInvalidInoEvent
	}
	order := binary.NativeEndian
	n := uint64(order.Uint32(buf[12:]))
	if n > uint64(len(buf)-inoEventHeaderSize) {
		return e, nil, errInvalidInoEvent
	}
	name, _, _ := bytes.Cut(buf[inoEventHeaderSize:inoEventHeaderSize+int(n)], []byte{0})
	return inoEvent{int32(order.Uint32(buf)), order.Uint32(buf[4:]), string(name)}, buf[inoEventHeaderSize+int(n):], nil
}
