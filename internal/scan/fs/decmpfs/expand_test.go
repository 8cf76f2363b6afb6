package decmpfs

import (
	"bytes"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/lzfse/lzfsetest"
)

// FuzzExpand decompresses single blocks of every kind.
func FuzzExpand(f *testing.F) {
	b := bytes.Repeat([]byte("a block of a file, "), 50)
	f.Add(uint32(kindZlib), []byte{0x78, 0x9c, 3, 0, 0, 0, 0, 1}, 10)
	f.Add(uint32(kindZlib), append([]byte{0xff}, b...), len(b))
	f.Add(uint32(kindLZVN), lzfsetest.LZVN(b), len(b))
	f.Add(uint32(kindLZFSE), lzfsetest.LZFSE(b, lzfsetest.Packed), len(b))
	f.Add(uint32(kindLZBitmap), lzfsetest.LZBitmap(b), len(b))
	f.Add(uint32(kindRaw), []byte{}, 5)
	f.Fuzz(func(t *testing.T, kind uint32, src []byte, size int) {
		if size < 0 || size > plainBlockBytes {
			return
		}
		out, err := decompress(kind%16, src, size)
		if err == nil && len(out) > max(size, len(src)) {
			t.Errorf("%d bytes of %d", len(out), size)
		}
	})
}
