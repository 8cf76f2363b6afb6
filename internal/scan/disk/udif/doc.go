// Package udif reads Apple's disk images (DMG): chunks that are stored, zero, or compressed with zlib,
// bzip2, LZFSE, xz or ADC, with their tables in a property list or a resource fork. Sources of the
// format: 7-Zip's DmgHandler.cpp, QEMU's block/dmg.c, and libmodi's description of it.
//
// It reads no encrypted image, none in several files, and no sparse bundle. Its CRC-32 sums are over
// whole partitions and are not verified, since only parts are read: zlib, bzip2 and xz have sums of their
// chunks, which are.
//
// Invariant: images are untrusted. Whatever their bytes are, reading one ends, and takes memory in
// proportion to its tables, up to fixed limits.
package udif

import (
	"encoding/binary"
	"io"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

const (
	sectorBytes  = chunked.SectorBytes
	trailerBytes = 512
	trailerMagic = "koly"
)

// IsImage reports whether a file of size bytes ends with the trailer of an image.
func IsImage(r io.ReaderAt, size int64) bool {
	var b [8]byte
	if size < trailerBytes {
		return false
	}
	n, _ := r.ReadAt(b[:], size-trailerBytes)
	return n == len(b) && string(b[:4]) == trailerMagic && binary.BigEndian.Uint32(b[4:]) == trailerVersion
}
