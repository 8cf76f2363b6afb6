package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// The parts of a fanotify event, fanotify(7) and linux/fanotify.h. Numbers are in the machine's
// byte order.
const (
	fanEventHeaderSize  = 24 // bytes of the fixed part
	fanInfoHeaderSize   = 4
	fanFSIDSize         = 8
	fanHandleHeaderSize = 8 // before a handle: its length and type
	fanVersion          = 3
	fanMaxHandleSize    = 128 // MAX_HANDLE_SZ

	infoFid      = 1
	infoDfidName = 2
	infoDfid     = 3
)

// fanEvent is a kernel event about a name in a directory. Its parts are slices of the buffer, since
// most events are dropped by their names.
type fanEvent struct {
	mask   uint64
	fd     int32 // the file itself, for groups that request it; below zero otherwise
	pid    int32
	handle []byte // of the directory: file system, type, handle; empty if unknown
	name   []byte // "." for the directory itself
}

// errInvalidFanEvent is the error for a buffer that the kernel does not write.
var errInvalidFanEvent = errors.New("invalid fanotify event")

// nextFanEvent decodes one event of a buffer.
func nextFanEvent(buf []byte) (e fanEvent, rest []byte, err error) {
	if len(buf) < fanEventHeaderSize {
		return e, nil, errInvalidFanEvent
	}
	order := binary.NativeEndian
	size, head := int(order.Uint32(buf)), int(order.Uint16(buf[6:]))
	if buf[4] != fanVersion || head < fanEventHeaderSize || size < head || size > len(buf) {
		return e, nil, errInvalidFanEvent
	}
	e.mask = order.Uint64(buf[8:])
	e.fd, e.pid = int32(order.Uint32(buf[16:])), int32(order.Uint32(buf[20:]))
	for info := buf[head:size]; len(info) >= fanInfoHeaderSize; {
		n := int(order.Uint16(info[2:]))
		if n < fanInfoHeaderSize || n > len(info) {
			return e, nil, errInvalidFanEvent
		}
		if err := e.addInfo(info[0], info[fanInfoHeaderSize:n]); err != nil {
			return e, nil, err
		}
		info = info[n:]
	}
	return e, buf[size:], nil
}

// addInfo decodes one of the records that follow an event.
func (e *fanEvent) addInfo(kind byte, body []byte) error {
	if kind != infoDfidName && kind != infoDfid && kind != infoFid {
		return nil
	}
	if len(body) < fanFSIDSize+fanHandleHeaderSize {
		return errInvalidFanEvent
	}
	n := uint64(binary.NativeEndian.Uint32(body[fanFSIDSize:]))
	if n > fanMaxHandleSize || n > uint64(len(body)-fanFSIDSize-fanHandleHeaderSize) {
		return errInvalidFanEvent
	}
	end := fanFSIDSize + fanHandleHeaderSize + int(n)
	if kind == infoFid {
		return nil // the file's own; the directory's is sufficient
	}
	e.handle, e.name = body[:end], []byte(".")
	if kind == infoDfidName {
		name, _, ok := bytes.Cut(body[end:], []byte{0})
		if !ok {
			return errInvalidFanEvent
		}
		e.name = name
	}
	return nil
}

// splitHandle splits a handle.
func splitHandle(handle []byte) (fsid [fanFSIDSize]byte, kind int32, data []byte, ok bool) {
	if len(handle) < fanFSIDSize+fanHandleHeaderSize {
		return fsid, 0, nil, false
	}
	copy(fsid[:], handle)
	return fsid, int32(binary.NativeEndian.Uint32(handle[fanFSIDSize+4:])), handle[fanFSIDSize+fanHandleHeaderSize:],
		true
}
