package decmpfs

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"

	"github.com/buildyard/buildyard/internal/scan/lzfse"
)

// Kinds of compression of what is in the attribute. The next higher number is that of the same kind in the resource
// fork.
const (
	kindPlain    = 1
	kindZlib     = 3
	kindDedup    = 5
	kindLZVN     = 7
	kindRaw      = 9
	kindLZFSE    = 11
	kindLZBitmap = 13

	storedByte     = 0x0f // low bits of the first byte of what is not compressed
	storedLZVNByte = 0x06
	blockByte      = 'b' // begins every block of LZFSE
)

// decompress decompresses one block to at most size bytes.
func decompress(kind uint32, src []byte, size int) ([]byte, error) {
	if kind == kindPlain {
		return src, nil
	}
	if len(src) == 0 {
		return nil, damaged("it has no compressed bytes")
	}
	stored := src[0]&storedByte == storedByte
	switch kind {
	case kindZlib:
		if stored {
			return src[1:], nil
		}
		return inflate(src, size)
	case kindRaw:
		return src[1:], nil
	case kindLZVN:
		if src[0] == storedLZVNByte {
			return src[1:], nil
		}
		return decodeInto(lzfse.DecodeLZVN, src, size)
	case kindLZFSE:
		if src[0] != blockByte {
			return src[1:], nil
		}
		return decodeInto(lzfse.Decode, src, size)
	case kindLZBitmap:
		if stored {
			return src[1:], nil
		}
		return decodeInto(lzfse.DecodeBitmap, src, size)
	}
	return nil, fmt.Errorf("kind %d: %w", kind, ErrUnsupported)
}

// decodeInto runs a decoder into a new slice.
func decodeInto(by func(dst, src []byte) (int, error), src []byte, size int) ([]byte, error) {
	out := make([]byte, size)
	n, err := by(out, src)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return out[:n], nil
}

func inflate(src []byte, size int) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(src))
	if err != nil {
		return nil, damaged("%v", err)
	}
	out := make([]byte, size)
	n, err := io.ReadFull(r, out)
	if err != nil {
		return nil, damaged("after %d bytes: %v", n, err)
	}
	return out, nil
}
