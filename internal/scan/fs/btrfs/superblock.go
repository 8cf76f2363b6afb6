package btrfs

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const (
	superMagic       = "_BHRfS_M"
	superMagicOffset = 64
	superSize        = 4096
	systemChunksAt   = 811 // of the chunks that are in the superblock
	systemChunksSize = 2048

	minSectorSize, maxSectorSize = 4 << 10, 64 << 10
	maxNodeSize                  = 64 << 10
)

// superOffsets are the offsets of the superblock and its copies.
var superOffsets = []int64{64 << 10, 64 << 20, 256 << 30}

// Flags of the superblock.
const (
	flagMetadump   = 1 << 33 // a dump of metadata, without contents
	flagMetadumpV2 = 1 << 34
)

// Incompatible features: a reader that does not support one must not read.
const (
	incompatMetadataUUID = 0x400

	// Known features that change nothing of what is read here: back references, a default subvolume, blocks of
	// metadata and content, lzo, zstd, large metadata, extended references, RAID 5 and 6, small references of metadata,
	// no holes, the UUID of metadata, RAID 1 with 3 and 4 copies, simple quotas.
	supportedIncompat = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x200 |
		incompatMetadataUUID | 0x800 | 0x10000
)

// unsupportedIncompat names known features that are not supported.
var unsupportedIncompat = []struct {
	bit  uint64
	name string
}{
	{0x1000, "zoned"}, {0x2000, "extent-tree-v2"}, {0x4000, "raid-stripe-tree"}, {0x20000, "remap-tree"},
}

// treeRoot is a reference to the root of a tree.
type treeRoot struct {
	address    uint64 // logical
	generation uint64 // of the root
	level      byte   // 0: the root is a leaf
}

// superblock has the fields of the superblock that reading needs.
type superblock struct {
	sum                checksum
	flags, incompat    uint64
	generation         uint64
	roots, chunks      treeRoot
	log                uint64 // address of the log tree; 0 = there is none
	rootDir            uint64 // object in the tree of roots that names the default subvolume
	size               uint64 // bytes of all devices
	devices            uint64
	device             uint64   // number of this device
	sectorSize         int64    // bytes
	nodeSize           int64    // bytes
	metadataID         [16]byte // UUID in the headers of nodes
	systemChunks       []byte
	systemChunksLength uint32
	label              string
	copyNumber         int // 0: it is not a copy
}

// readSuperblock reads the superblock, or if that is damaged its newest valid copy, as the kernel's rescue mode.
func readSuperblock(r io.ReaderAt, size int64) (*superblock, error) {
	b, err := readAt(r, superOffsets[0])
	if err != nil {
		return nil, err
	}
	if string(b[superMagicOffset:][:len(superMagic)]) != superMagic {
		return nil, ErrNotBtrfs
	}
	s, err := parseSuperblock(b, superOffsets[0])
	if !errors.Is(err, ErrDamaged) {
		return s, err
	}
	var best *superblock
	for k, off := range superOffsets {
		if k == 0 || off > size-superSize {
			continue
		}
		b, e := readAt(r, off)
		if e != nil {
			continue
		}
		if c, e := parseSuperblock(b, off); e == nil && (best == nil || c.generation > best.generation) {
			best = c
			best.copyNumber = k
		}
	}
	if best != nil {
		return best, nil
	}
	return nil, err
}

// readAt reads the bytes of a superblock.
func readAt(r io.ReaderAt, off int64) ([]byte, error) {
	b := make([]byte, superSize)
	if got, err := r.ReadAt(b, off); got < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, ErrNotBtrfs
		}
		return nil, fmt.Errorf("read superblock: %w", err)
	}
	return b, nil
}

// parseSuperblock reads the superblock at an offset.
func parseSuperblock(b []byte, off int64) (*superblock, error) {
	if string(b[superMagicOffset:][:len(superMagic)]) != superMagic {
		return nil, damaged("its superblock at byte %d has no magic", off)
	}
	sum, err := newChecksum(le.Uint16(b[196:]))
	if err != nil {
		return nil, err
	}
	if !sum.equal(b[maxSumSize:], b) {
		return nil, damaged("its superblock at byte %d is not what its checksum says", off)
	}
	if at := le.Uint64(b[48:]); at != uint64(off) {
		return nil, damaged("its superblock at byte %d says that it is at byte %d", off, at)
	}
	generation := le.Uint64(b[72:])
	s := &superblock{
		sum: sum, flags: le.Uint64(b[56:]), incompat: le.Uint64(b[188:]), generation: generation,
		roots:  treeRoot{address: le.Uint64(b[80:]), generation: generation, level: b[198]},
		chunks: treeRoot{address: le.Uint64(b[88:]), generation: le.Uint64(b[164:]), level: b[199]},
		log:    le.Uint64(b[96:]), rootDir: le.Uint64(b[128:]), size: le.Uint64(b[112:]),
		devices: le.Uint64(b[136:]), device: le.Uint64(b[201:]),
		sectorSize: int64(le.Uint32(b[144:])), nodeSize: int64(le.Uint32(b[148:])),
		metadataID:         [16]byte(b[32:48]),
		systemChunks:       b[systemChunksAt:][:systemChunksSize],
		systemChunksLength: le.Uint32(b[160:]),
		label:              inodefs.CString(b[299:555]),
	}
	if s.incompat&incompatMetadataUUID != 0 {
		s.metadataID = [16]byte(b[571:587])
	}
	return s, s.checkSupported()
}

// checkSupported refuses a file system that cannot be read.
func (s *superblock) checkSupported() error {
	missing := s.incompat &^ supportedIncompat
	var names []string
	for _, f := range unsupportedIncompat {
		if missing&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	isPower := func(n, least, most int64) bool { return n >= least && n <= most && n&(n-1) == 0 }
	switch {
	case len(names) > 0:
		return fmt.Errorf("%w: %s (%#x)", ErrUnsupported, strings.Join(names, ", "), missing)
	case missing != 0:
		return fmt.Errorf("%w: unknown features (%#x)", ErrUnsupported, missing)
	case s.flags&(flagMetadump|flagMetadumpV2) != 0:
		return errors.New("it is a dump of metadata, which has no content of files: scan the disk itself")
	case s.devices != 1:
		return fmt.Errorf("%w: it is on %d devices, and only file systems on one device are read", ErrUnsupported,
			s.devices)
	case !isPower(s.sectorSize, minSectorSize, maxSectorSize):
		return damaged("its sectors have %d bytes", s.sectorSize)
	case !isPower(s.nodeSize, s.sectorSize, maxNodeSize):
		return damaged("its nodes have %d bytes", s.nodeSize)
	case s.systemChunksLength > systemChunksSize:
		return damaged("it has %d bytes of chunks in its superblock", s.systemChunksLength)
	}
	return nil
}
