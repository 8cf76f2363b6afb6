package treetest

import (
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Unpacked reads a file system stored in a package, which is compressed with zstd.
func Unpacked(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if b, err = d.DecodeAll(b, nil); err != nil {
		t.Fatal(err)
	}
	return b
}
