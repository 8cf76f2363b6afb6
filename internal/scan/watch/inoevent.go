package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// inoHead is the fixed part of an inotify event: watch, mask, cookie, length of the name.
const inoHead = 16

// inoEvent is a kernel event in a watched directory.
type inoEvent struct {
	watch int32
	mask  uint32
	name  string // empty for the directory itself
}

var errInoEvent = errors.New("invalid inotify event")

// nextInoEvent decodes one event of a buffer.
func nextInoEvent(buf []byte) (e inoEvent, rest []byte, err error) {
	if len(buf) < inoHead {
		return e, nil, errInoEvent
	}
	order := binary.NativeEndian
	n := uint64(order.Uint32(buf[12:]))
	if n > uint64(len(buf)-inoHead) {
		return e, nil, errInoEvent
	}
	name, _, _ := bytes.Cut(buf[inoHead:inoHead+int(n)], []byte{0})
	return inoEvent{int32(order.Uint32(buf)), order.Uint32(buf[4:]), string(name)}, buf[inoHead+int(n):], nil
}
