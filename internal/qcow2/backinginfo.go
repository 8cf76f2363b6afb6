package qcow2

import (
	"encoding/binary"
	"errors"
	"io"
	"unicode/utf8"
)

const (
	maxBackingNameBytes    = 1023 // bytes of a backing file's name
	backingFormatExtension = 0xe2792aca
	maxExtensions          = 64
	maxFormatNameBytes     = 32
)

// BackingInfo describes an image and its backing file.
type BackingInfo struct {
	DiskSize      int64  // bytes of the disk
	BackingName   string // name of the backing file, unchanged; "" = none
	BackingFormat string // of that file: "raw", "qcow2" or another name; "" = not stated
	MemoryBytes   int64  // minimum bytes of memory to read the image
}

// ReadBackingInfo reads the header of an image. The named files are not accessed.
func ReadBackingInfo(r io.ReaderAt) (BackingInfo, error) {
	h, err := readHeader(r)
	if err != nil {
		return BackingInfo{}, err
	}
	l1 := (int64(h.diskSize) + h.l2TableSpan() - 1) / h.l2TableSpan() * l2EntryBytes
	n := BackingInfo{DiskSize: int64(h.diskSize), MemoryBytes: 2*min(l1, maxL1Bytes) + 2<<h.clusterBits}
	if h.backingOffset == 0 {
		return n, nil
	}
	if h.backingNameBytes == 0 || h.backingNameBytes > maxBackingNameBytes ||
		h.backingOffset > 1<<h.clusterBits-uint64(h.backingNameBytes) {
		return BackingInfo{}, damaged("the name of its backing file has %d bytes at %d", h.backingNameBytes,
			h.backingOffset)
	}
	name := make([]byte, h.backingNameBytes)
	if err := readFull(r, name, int64(h.backingOffset)); err != nil {
		return BackingInfo{}, err
	}
	if !utf8.Valid(name) {
		return BackingInfo{}, damaged("the name of its backing file is not text")
	}
	n.BackingName = string(name)
	n.BackingFormat, err = h.backingFormat(r)
	return n, err
}

// backingFormat looks for the format among the extensions, which are between the header and the
// name.
func (h header) backingFormat(r io.ReaderAt) (string, error) {
	at := int64(h.headerBytes)
	for range maxExtensions {
		if at > int64(h.backingOffset)-8 {
			return "", nil
		}
		var head [8]byte
		if err := readFull(r, head[:], at); err != nil {
			return "", err
		}
		kind, length := binary.BigEndian.Uint32(head[:]), int64(binary.BigEndian.Uint32(head[4:]))
		at += int64(len(head))
		switch kind {
		case 0:
			return "", nil
		case backingFormatExtension:
			if length > maxFormatNameBytes {
				return "", damaged("the format of its backing file has a name of %d bytes", length)
			}
			name := make([]byte, length)
			err := readFull(r, name, at)
			return string(name), err
		}
		at += (length + 7) &^ 7
	}
	return "", damaged("it has more than %d extensions", maxExtensions)
}

// readFull reads all of p: an early end is damage.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return damaged("it ends within its header")
	}
	return err
}
