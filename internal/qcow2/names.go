package qcow2

import (
	"encoding/binary"
	"errors"
	"io"
	"unicode/utf8"
)

const (
	maxBacking      = 1023 // bytes of a backing file's name
	backingFormatOf = 0xe2792aca
	maxExtensions   = 64
	maxFormatName   = 32
)

// Names describes an image and its backing file.
type Names struct {
	Size    int64  // bytes of the disk
	Backing string // name of the backing file, unchanged; "" = none
	Format  string // of that file: "raw", "qcow2" or another name; "" = not stated
	Memory  int64  // minimum bytes of memory to read the image
}

// ReadNames reads the header of an image. The named files are not accessed.
func ReadNames(r io.ReaderAt) (Names, error) {
	h, err := readHeader(r)
	if err != nil {
		return Names{}, err
	}
	l1 := (int64(h.size) + h.span() - 1) / h.span() * entryBytes
	n := Names{Size: int64(h.size), Memory: 2*min(l1, maxL1Bytes) + 2<<h.clusterBits}
	if h.backing == 0 {
		return n, nil
	}
	if h.backingSize == 0 || h.backingSize > maxBacking || h.backing > 1<<h.clusterBits-uint64(h.backingSize) {
		return Names{}, damaged("the name of its backing file has %d bytes at %d", h.backingSize, h.backing)
	}
	name := make([]byte, h.backingSize)
	if err := readFull(r, name, int64(h.backing)); err != nil {
		return Names{}, err
	}
	if !utf8.Valid(name) {
		return Names{}, damaged("the name of its backing file is not text")
	}
	n.Backing = string(name)
	n.Format, err = h.backingFormat(r)
	return n, err
}

// backingFormat looks for the format among the extensions, which are between the header and the
// name.
func (h header) backingFormat(r io.ReaderAt) (string, error) {
	at := int64(h.length)
	for range maxExtensions {
		if at > int64(h.backing)-8 {
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
		case backingFormatOf:
			if length > maxFormatName {
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
