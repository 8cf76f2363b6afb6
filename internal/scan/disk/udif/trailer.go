package udif

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

const (
	trailerVersion = 4
	maxPlistBytes  = 48 << 20
	maxForkBytes   = 32 << 20
)

// place is a part of the file.
type place struct{ at, length int64 }

// trailer has the fields of the trailer that reading an image needs.
type trailer struct {
	data, fork, plist place
	diskBytes         int64
}

// readTrailer reads the last bytes of a file.
func readTrailer(r io.ReaderAt, size int64) (trailer, error) {
	var b [trailerBytes]byte
	if size < trailerBytes {
		return trailer{}, chunked.Damaged("the file has %d bytes", size)
	}
	if err := chunked.ReadFull(r, b[:], size-trailerBytes, "the trailer"); err != nil {
		return trailer{}, err
	}
	be := binary.BigEndian
	sectors, segments := be.Uint64(b[492:]), be.Uint32(b[60:])
	switch {
	case string(b[:4]) != trailerMagic || be.Uint32(b[4:]) != trailerVersion:
		return trailer{}, chunked.Damaged("the file has no trailer of a disk image")
	case segments > 1:
		return trailer{}, fmt.Errorf("the image is in %d files (segments): join them on a Mac with hdiutil convert",
			segments)
	case sectors == 0 || sectors > chunked.MaxDiskBytes/sectorBytes:
		return trailer{}, chunked.Damaged("its disk has %d sectors", sectors)
	}
	t := trailer{diskBytes: int64(sectors) * sectorBytes}
	for _, p := range []struct {
		to   *place
		from int
		name string
	}{{&t.data, 24, "data fork"}, {&t.fork, 40, "resource fork"}, {&t.plist, 216, "property list"}} {
		at, n := be.Uint64(b[p.from:]), be.Uint64(b[p.from+8:])
		if at > uint64(size) || n > uint64(size)-at {
			return trailer{}, chunked.Damaged("its %s has %d bytes at %d of a file of %d", p.name, n, at, size)
		}
		*p.to = place{int64(at), int64(n)}
	}
	return t, nil
}

// readTables returns the block tables of the disk's parts.
func (t *trailer) readTables(r io.ReaderAt) ([][]byte, error) {
	switch {
	case t.plist.length > maxPlistBytes || t.fork.length > maxForkBytes:
		return nil, errors.New("the tables of the image are too large")
	case t.plist.length > 0:
		return tablesOfPlist(io.NewSectionReader(r, t.plist.at, t.plist.length))
	case t.fork.length > 0:
		b := make([]byte, t.fork.length)
		if err := chunked.ReadFull(r, b, t.fork.at, "the resource fork"); err != nil {
			return nil, err
		}
		return tablesOfFork(b)
	}
	return nil, chunked.Damaged("it has neither a property list nor a resource fork")
}
