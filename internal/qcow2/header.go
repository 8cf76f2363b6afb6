package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits on what is read. QEMU has the same for clusters and the L1 table.
const (
	MaxDiskBytes = 1 << 50 // bytes

	minClusterBits         = 9
	maxClusterBits         = 21
	minExtendedClusterBits = 14
	maxL1Bytes             = 32 << 20
)

const (
	magic         = 0x514649fb // "QFI\xfb"
	headerV2Bytes = 72
	headerV3Bytes = 104
	// Version 3 as written today: with the compression type and its padding.
	headerFullBytes = 112

	l2EntryBytes         = 8
	extendedL2EntryBytes = 16
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
	version          uint32
	backingOffset    uint64 // offset of the backing file's name; 0 = none
	backingNameBytes uint32 // bytes of the name
	headerBytes      uint32 // of the header itself
	clusterBits      uint32
	diskSize         uint64
	encryptionMethod uint32
	l1Count          uint32
	l1Offset         uint64
	features         uint64
	compressionType  byte
}

// DiskSize returns the disk size in bytes from the header of an image. An image with a backing file
// or with external data is refused, and the error states why.
func DiskSize(r io.ReaderAt) (int64, error) {
	h, err := readHeader(r)
	if err == nil {
		err = h.checkNoBacking()
	}
	if err != nil {
		return 0, err
	}
	return int64(h.diskSize), nil
}

func readHeader(r io.ReaderAt) (header, error) {
	var b [headerFullBytes]byte
	n, err := r.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return header{}, err
	}
	be := binary.BigEndian
	h := header{
		version: be.Uint32(b[4:]), backingOffset: be.Uint64(b[8:]), backingNameBytes: be.Uint32(b[16:]),
		headerBytes: headerV2Bytes,
		clusterBits: be.Uint32(b[20:]), diskSize: be.Uint64(b[24:]),
		encryptionMethod: be.Uint32(b[32:]), l1Count: be.Uint32(b[36:]), l1Offset: be.Uint64(b[40:]),
	}
	if n < headerV2Bytes || be.Uint32(b[:]) != magic || h.version < 2 || h.version > 3 {
		return header{}, errors.New("not a qcow2 version 2 or 3 image")
	}
	if h.version == 3 {
		h.headerBytes = be.Uint32(b[100:])
		if n < headerV3Bytes || h.headerBytes < headerV3Bytes {
			return header{}, damaged("its header is too short")
		}
		h.features = be.Uint64(b[72:])
		if h.headerBytes > headerV3Bytes {
			h.compressionType = b[104]
		}
	}
	return h, h.checkReadable()
}

// checkNoBacking refuses an image with a backing file.
func (h header) checkNoBacking() error {
	if h.backingOffset != 0 {
		return errors.New("the qcow2 image is an overlay on another image; convert it to a standalone image")
	}
	return nil
}

// checkReadable refuses an image that cannot be read from this file alone.
func (h header) checkReadable() error {
	least := uint32(minClusterBits)
	if h.hasExtendedL2() {
		least = minExtendedClusterBits
	}
	switch {
	case h.features&featureDataFile != 0:
		return errors.New("the data of the qcow2 image is in another file; convert it to a standalone image")
	case h.encryptionMethod != 0:
		return errors.New("the qcow2 image is encrypted, which is not supported")
	case h.features&^featuresKnown != 0:
		return fmt.Errorf("the qcow2 image has unsupported features (%#x)", h.features&^featuresKnown)
	case h.diskSize == 0 || h.diskSize > MaxDiskBytes:
		return fmt.Errorf("the disk of the qcow2 image has %d bytes: want 1-%d", h.diskSize, int64(MaxDiskBytes))
	case h.clusterBits < least || h.clusterBits > maxClusterBits:
		return damaged("its clusters have 2^%d bytes", h.clusterBits)
	case (h.compressionType != compressDeflate) != (h.features&featureCompression != 0):
		return damaged("its compression type and its features contradict each other")
	case h.compressionType > compressZstd:
		return fmt.Errorf("the qcow2 image has an unsupported compression type (%d)", h.compressionType)
	}
	return nil
}

func (h header) hasExtendedL2() bool { return h.features&featureExtendedL2 != 0 }

// entrySize returns the size of an L2 entry in bytes.
func (h header) entrySize() int64 {
	if h.hasExtendedL2() {
		return extendedL2EntryBytes
	}
	return l2EntryBytes
}

// l2TableSpan returns how many bytes of the disk one L2 table maps.
func (h header) l2TableSpan() int64 {
	cluster := int64(1) << h.clusterBits
	return cluster / h.entrySize() * cluster
}
