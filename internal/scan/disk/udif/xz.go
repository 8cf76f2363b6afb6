package udif

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

// Parts of an xz stream. Source: "The .xz File Format 1.1.0".
const (
	xzMagic       = "\xfd7zXZ\x00"
	xzHeaderBytes = 12
	xzLZMA2       = 0x21 // a filter
	xzHasPacked   = 0x40 // a block's header has its compressed size
	xzHasUnpacked = 0x80
	xzFilters     = 0x03 // number of filters less one
	xzSumNone     = 0
	xzSumCRC32    = 1
	xzSumCRC64    = 4
	xzSumSHA256   = 10
)

var (
	errXZ      = errors.New("it is not an xz stream, or is cut off")
	errXZSum   = errors.New("the checksum of a block is wrong")
	crc64Table = crc64.MakeTable(crc64.ECMA)
)

// decodeXZ decodes the blocks of an xz stream, and returns the number of bytes. The dictionary is as large as out,
// whatever the stream claims: nothing can be further behind. The list of blocks at the end is not read.
func decodeXZ(out, packed []byte) (int, error) {
	if len(packed) < xzHeaderBytes || string(packed[:len(xzMagic)]) != xzMagic ||
		crc32.ChecksumIEEE(packed[6:8]) != binary.LittleEndian.Uint32(packed[8:]) {
		return 0, errXZ
	}
	sum, n := packed[7]&0xf, 0
	r := bytes.NewReader(packed)
	_, _ = r.Seek(xzHeaderBytes, io.SeekStart)
	for {
		isBlock, err := readXZHeader(r, packed)
		if err != nil || !isBlock {
			return n, err
		}
		z, err := lzma.Reader2Config{DictCap: max(lzma.MinDictCap, len(out))}.NewReader2(r)
		if err != nil {
			return n, err
		}
		size, err := chunked.ReadToEnd(z, out[n:])
		if err != nil {
			return n, err
		}
		if err := checkXZSum(r, packed, out[n:n+size], sum); err != nil {
			return n, err
		}
		n += size
	}
}

// readXZHeader reads the header of a block, in which one filter must be named; false at the end of the blocks.
func readXZHeader(r *bytes.Reader, packed []byte) (bool, error) {
	rest := packed[len(packed)-r.Len():]
	if len(rest) == 0 {
		return false, errXZ
	}
	size := (int(rest[0]) + 1) * 4
	if rest[0] == 0 {
		return false, nil
	}
	if size > len(rest) || crc32.ChecksumIEEE(rest[:size-4]) != binary.LittleEndian.Uint32(rest[size-4:]) {
		return false, errXZ
	}
	flags, header := rest[1], rest[2:size-4]
	for _, has := range []byte{xzHasPacked, xzHasUnpacked} {
		if flags&has != 0 {
			_, n := binary.Uvarint(header)
			if n <= 0 {
				return false, errXZ
			}
			header = header[n:]
		}
	}
	if flags&xzFilters != 0 || len(header) < 3 || header[0] != xzLZMA2 || header[1] != 1 {
		return false, errors.New("a block of its xz stream has unsupported filters")
	}
	_, err := r.Seek(int64(size), io.SeekCurrent)
	return true, err
}

// checkXZSum verifies what follows the compressed bytes of a block: padding to 4 bytes, and a checksum.
func checkXZSum(r *bytes.Reader, packed, block []byte, sum byte) error {
	at := (len(packed) - r.Len() + 3) &^ 3
	var want []byte
	switch sum {
	case xzSumNone:
	case xzSumCRC32:
		want = binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(block))
	case xzSumCRC64:
		want = binary.LittleEndian.AppendUint64(nil, crc64.Checksum(block, crc64Table))
	case xzSumSHA256:
		of := sha256.Sum256(block)
		want = of[:]
	default:
		return fmt.Errorf("its xz stream has unsupported checksums (%d)", sum)
	}
	if at > len(packed) || !bytes.HasPrefix(packed[at:], want) {
		return errXZSum
	}
	_, err := r.Seek(int64(at+len(want)), io.SeekStart)
	return err
}
