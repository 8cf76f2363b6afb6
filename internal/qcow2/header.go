package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits on what is read. QEMU has the same for clusters and the L1 table.
const (
	MaxDisk = 1 << 50 // bytes

	minClusterBits         = 9
	maxClusterBits         = 21
	minExtendedClusterBits = 14
	maxL1Bytes             = 32 << 20
)

const (
	magic    = 0x514649fb // "QFI\xfb"
	headerV2 = 72
	headerV3 = 104
	// Version 3 as written today: with the compression type and its padding.
	headerFull = 112

	entryBytes    = 8
	extendedBytes = 16
)

// Incompatible features. An image with another one cannot be read.
const (
	featureDirty       = 1 << 0 // refcounts may be wrong; this package does not use them
	featureCorrupt     = 1 << 1
	featureDataFile    = 1 << 2
	featureCompression = 1 << 3 // the compression type is not deflate
	featureExtendedL2  = 1 << 4
	featuresKnown      = featureDirty | featureCorrupt | featureDataFile | featureCompression | featureExtendedL2
)

// Compression types.
const (
	compressDeflate = 0
	compressZstd    = 1
)

// header has the header fields that reading an image needs.
type header struct {
	version     uint32
	backing     uint64 // offset of the backing file's name; 0 = none
	backingSize uint32 // bytes of the name
	length      uint32 // of the header itself
	clusterBits uint32
	size        uint64
	encryption  uint32
	l1Entries   uint32
	l1          uint64
	features    uint64
	compression byte
}

// DiskSize returns the disk size in bytes from the header of an image. An image with a backing file
// or with external data is refused, and the error states why.
func DiskSize(r io.ReaderAt) (int64, error) {
	h, err := readHeader(r)
	if err == nil {
		err = h.alone()
	}
	if err != nil {
		return 0, err
	}
	return int64(h.size), nil
}

func readHeader(r io.ReaderAt) (header, error) {
	var b [headerFull]byte
	n, err := r.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return header{}, err
	}
	be := binary.BigEndian
	h := header{
		version: be.Uint32(b[4:]), backing: be.Uint64(b[8:]), backingSize: be.Uint32(b[16:]), length: headerV2,
		clusterBits: be.Uint32(b[20:]), size: be.Uint64(b[24:]),
		encryption: be.Uint32(b[32:]), l1Entries: be.Uint32(b[36:]), l1: be.Uint64(b[40:]),
	}
	if n < headerV2 || be.Uint32(b[:]) != magic || h.version < 2 || h.version > 3 {
		return header{}, errors.New("not a qcow2 version 2 or 3 image")
	}
	if h.version == 3 {
		h.length = be.Uint32(b[100:])
		if n < headerV3 || h.length < headerV3 {
			return header{}, damaged("its header is too short")
		}
		h.features = be.Uint64(b[72:])
		if h.length > headerV3 {
			h.compression = b[104]
		}
	}
	return h, h.check()
}

// alone refuses an image with a backing file.
func (h header) alone() error {
	if h.backing != 0 {
		return errors.New("it is an overlay on another image; convert it to one that stands alone")
	}
	return nil
}

// check refuses an image that cannot be read from this file alone.
func (h header) check() error {
	least := uint32(minClusterBits)
	if h.extended() {
		least = minExtendedClusterBits
	}
	switch {
	case h.features&featureDataFile != 0:
		return errors.New("its data is in another file; convert it to one that stands alone")
	case h.encryption != 0:
		return errors.New("it is encrypted")
	case h.features&^featuresKnown != 0:
		return fmt.Errorf("it uses features of qcow2 that are not known here (%#x)", h.features&^featuresKnown)
	case h.size == 0 || h.size > MaxDisk:
		return fmt.Errorf("its disk has %d bytes: want 1-%d", h.size, int64(MaxDisk))
	case h.clusterBits < least || h.clusterBits > maxClusterBits:
		return damaged("its clusters have 2^%d bytes", h.clusterBits)
	case (h.compression != compressDeflate) != (h.features&featureCompression != 0):
		return damaged("its compression type and its features contradict each other")
	case h.compression > compressZstd:
		return fmt.Errorf("it is compressed in a way (%d) that is not known here", h.compression)
	}
	return nil
}

func (h header) extended() bool { return h.features&featureExtendedL2 != 0 }

// entrySize returns the size of an L2 entry in bytes.
func (h header) entrySize() int64 {
	if h.extended() {
		return extendedBytes
	}
	return entryBytes
}

// span returns how many bytes of the disk one L2 table maps.
func (h header) span() int64 {
	cluster := int64(1) << h.clusterBits
	return cluster / h.entrySize() * cluster
}
