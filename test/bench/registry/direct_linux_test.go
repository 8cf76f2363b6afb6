package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestDirect: what is written without the page cache has its length, also an odd one.
func TestDirect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	const length = directChunk + 3*block
	if err := writeDirect(path, length); err != nil {
		t.Skipf("this file system does not take O_DIRECT: %v", err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Size() != length {
		t.Fatal(st.Size(), err)
	}
	if err := evict(path); err != nil {
		t.Error(err)
	}
	if err := readDirect(disk{path: path, blocks: slices.Repeat([]blockContent{original}, length/block)}); err != nil {
		t.Error(err)
	}
}
