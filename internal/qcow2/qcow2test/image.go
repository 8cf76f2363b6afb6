// Package qcow2test creates images for the tests of other packages. It is not for programs.
//
// Invariant: an image reads as its source disk, over the disk below.
package qcow2test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/qcow2"
)

// Image writes an overlay with the differences of a disk from the one below, in blocks of 4 KiB,
// and returns its path. With nothing below it is an image of the whole disk. The disk consists of
// whole blocks; the one below may be shorter.
func Image(t *testing.T, below, disk []byte) string {
	t.Helper()
	b := qcow2.NewBuilder(int64(len(disk)))
	zeros := make([]byte, qcow2.SubclusterBytes)
	for off := 0; off < len(disk); off += qcow2.SubclusterBytes {
		block, old := disk[off:off+qcow2.SubclusterBytes], make([]byte, qcow2.SubclusterBytes)
		if off < len(below) {
			copy(old, below[off:])
		}
		if bytes.Equal(block, old) {
			continue
		}
		r := qcow2.Range{Off: int64(off), Len: qcow2.SubclusterBytes, Kind: qcow2.Data}
		if bytes.Equal(block, zeros) {
			r.Kind = qcow2.Zero
		}
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	l, err := b.Layout()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "disk.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := l.CopyData(t.Context(), f, bytes.NewReader(disk)); err != nil {
		t.Fatal(err)
	}
	if err := l.Finish(f); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}
