package apfs

import (
	"errors"
	"fmt"
	"io"
	"math"
)

// Types of objects in their headers.
const (
	objectHeaderSize = 32 // bytes

	typeMask      = 0x0000ffff
	typeBTree     = 0x02
	typeBTreeNode = 0x03
	typeOMap      = 0x0b
	typeVolume    = 0x0d

	storageMask     = 0xc0000000
	storagePhysical = 0x40000000
)

// device reads blocks of a container.
type device struct {
	r          io.ReaderAt
	size       int64 // size of r in bytes
	blockSize  int
	blockCount uint64 // that the container claims to have

	nodeCache *generationCache[nodeKey, *node]
}

// withOwnCache returns a device with an empty cache, which is freed with it.
func (d *device) withOwnCache() *device {
	own := *d
	own.nodeCache = newGenerationCache[nodeKey, *node](nodeCacheBytes / d.blockSize)
	return &own
}

// read fills b from a block on. A range outside of the container is damage.
func (d *device) read(b []byte, block uint64, off int64) error {
	at, err := d.offset(block, off, len(b))
	if err != nil {
		return err
	}
	if n, err := d.r.ReadAt(b, at); n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read block %d: %w", block, err)
	}
	return nil
}

// offset returns the offset in the file of bytes of a block.
func (d *device) offset(block uint64, off int64, length int) (int64, error) {
	if block >= d.blockCount || block > uint64(math.MaxInt64/d.blockSize) || off < 0 {
		return 0, damaged("block %d is outside of it", block)
	}
	at := int64(block) * int64(d.blockSize)
	if at >= d.size || off > d.size-at || int64(length) > d.size-at-off {
		return 0, damaged("block %d is past its end: the image is cut off", block)
	}
	return at + off, nil
}

// readBlock reads one block.
func (d *device) readBlock(n uint64) ([]byte, error) {
	b := make([]byte, d.blockSize)
	return b, d.read(b, n, 0)
}

// readObject reads a block that begins with a header, and checks its checksum and type.
func (d *device) readObject(n uint64, kind uint32) ([]byte, error) {
	b, err := d.readBlock(n)
	if err != nil {
		return nil, err
	}
	if !checksumValid(b) {
		return nil, damaged("block %d has a wrong checksum", n)
	}
	if got := le.Uint32(b[24:]) & typeMask; got != kind {
		return nil, damaged("block %d is of type %#x, not %#x", n, got, kind)
	}
	return b, nil
}

// checksumValid reports whether the checksum of an object is correct: Fletcher's with two sums of 32 bits
// over all bytes after it. Its length is a multiple of four.
func checksumValid(b []byte) bool {
	return le.Uint64(b) == checksum(b[8:])
}

func checksum(b []byte) uint64 {
	const mod = math.MaxUint32
	var a, c uint64
	for len(b) > 0 {
		// 1024 words at a time keep the second sum far below 64 bits.
		n := min(len(b), 4096)
		for i := 0; i+4 <= n; i += 4 {
			a += uint64(le.Uint32(b[i:]))
			c += a
		}
		a, c = a%mod, c%mod
		b = b[n:]
	}
	low := mod - (a+c)%mod
	high := mod - (a+low)%mod
	return high<<32 | low
}
