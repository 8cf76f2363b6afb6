package btrfs

import (
	"crypto/sha256"
	"fmt"
	"hash/crc32"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/crypto/blake2b"
)

// maxSumSize is the size of the field of a checksum in a header in bytes.
const maxSumSize = 32

// checksum is a kind of checksum.
type checksum struct {
	size int // in the tree of checksums, in bytes
	of   func(b []byte) [maxSumSize]byte
}

// checksums are the kinds of checksums, by their number in the superblock.
var checksums = []checksum{{4, sumCRC32C}, {8, sumXXHash}, {32, sha256.Sum256}, {32, blake2b.Sum256}}

func newChecksum(kind uint16) (checksum, error) {
	if int(kind) >= len(checksums) {
		return checksum{}, fmt.Errorf("%w: checksums of kind %d, which is none of crc32c, xxhash64, sha256 and blake2b",
			ErrUnsupported, kind)
	}
	return checksums[kind], nil
}

// equal reports whether the checksum of b is the one at the beginning of want.
func (c checksum) equal(b, want []byte) bool {
	sum := c.of(b)
	return string(sum[:c.size]) == string(want[:c.size])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sumCRC32C(b []byte) (sum [maxSumSize]byte) {
	le.PutUint32(sum[:], crc32.Checksum(b, castagnoli))
	return sum
}

func sumXXHash(b []byte) (sum [maxSumSize]byte) {
	le.PutUint64(sum[:], xxhash.Sum64(b))
	return sum
}
