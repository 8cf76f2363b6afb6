package btrfs

import (
	"bytes"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// sealedPart is what a checksum of an image is over.
type sealedPart struct{ at, size int }

// sealedParts returns the superblock and all nodes of an image, also those of earlier generations.
func sealedParts(f *FS, b []byte) []sealedPart {
	s := f.device.superblock
	out := []sealedPart{{int(superOffsets[0]), superSize}}
	for at := 0; at+int(s.nodeSize) <= len(b); at += int(s.sectorSize) {
		if part := b[at:][:s.nodeSize]; [16]byte(part[32:48]) == s.metadataID && s.sum.equal(part[maxSumSize:], part) {
			out = append(out, sealedPart{at, int(s.nodeSize)})
		}
	}
	return out
}

// usedOffsets returns the offsets of the bytes of a part that are not zero, without those of the checksum.
func usedOffsets(part []byte) (out []int) {
	for at := maxSumSize; at < len(part); at++ {
		if part[at] != 0 {
			out = append(out, at)
		}
	}
	return out
}

// FuzzWalk changes some bytes of a file system behind its checksums and walks it. A change is two bytes of a part that
// has a checksum, two of the offset in what it uses, and two of content. Checksums are set again, as the author of an
// image would.
func FuzzWalk(f *testing.F) {
	type target struct {
		fsys  *FS
		b     []byte
		parts []sealedPart
		used  [][]int
	}
	var all []target
	for _, name := range []string{"mixed", "separate"} {
		b := carried(f, name)
		fsys, err := Open(bytes.NewReader(bytes.Clone(b)), int64(len(b)))
		if err != nil {
			f.Fatal(err)
		}
		x := target{fsys: fsys, b: b, parts: sealedParts(fsys, b)}
		for _, p := range x.parts {
			x.used = append(x.used, usedOffsets(b[p.at:][:p.size]))
		}
		all = append(all, x)
	}
	for k := range all {
		f.Add(byte(k), []byte{})
		for part := range min(len(all[k].parts), 12) {
			f.Add(byte(k), []byte{0, byte(part), 0, 40, 1, 0})
			f.Add(byte(k), []byte{0, byte(part), 1, 0, 255, 255, 0, byte(part + 1), 2, 7, 0, 0})
		}
	}
	f.Fuzz(func(t *testing.T, which byte, changes []byte) {
		x := all[int(which)%len(all)]
		before := map[int][]byte{}
		for ; len(changes) >= 6; changes = changes[6:] {
			k := (int(changes[0])<<8 | int(changes[1])) % len(x.parts)
			p := x.parts[k]
			part := x.b[p.at:][:p.size]
			if before[p.at] == nil {
				before[p.at] = bytes.Clone(part)
			}
			at := x.used[k][(int(changes[2])<<8|int(changes[3]))%len(x.used[k])]
			copy(part[at:], changes[4:6])
			x.fsys.seal(part)
		}
		defer func() {
			for at, was := range before {
				copy(x.b[at:], was)
			}
		}()
		w, err := look(t, x.b)
		if err == nil && w.Bytes > 512*treetest.MostOfAFile {
			t.Fatalf("%d bytes", w.Bytes)
		}
	})
}

// FuzzUnpack decompresses what an extent may have.
func FuzzUnpack(f *testing.F) {
	b := carried(f, "mixed")
	fsys, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range []string{"zlib", "lzo", "zstd"} {
		packed, d := packedExtent(f, fsys, path+"/numbers")
		f.Add(d.packing, uint32(d.unpacked), packed)
		f.Add(d.packing, uint32(100), packed[:len(packed)/2])
	}
	f.Fuzz(func(t *testing.T, packing byte, size uint32, packed []byte) {
		size = 1 + size%maxUnpacked
		out, err := unpack(packNone+1+packing%3, packed[:min(len(packed), maxUnpacked)], int(size), minSectorSize)
		if err == nil && len(out) != int(size) {
			t.Fatalf("%d bytes instead of %d", len(out), size)
		}
	})
}

// packedExtent returns the first extent of a file as it is on the disk.
func packedExtent(t testing.TB, f *FS, path string) ([]byte, extentPart) {
	t.Helper()
	st, err := f.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	e, err := f.findExtent(st.Sys().(*inode), 0)
	if err != nil || e.disk.packing == packNone {
		t.Fatalf("%s is not compressed: %+v, %v", path, e, err)
	}
	b := make([]byte, e.disk.packed)
	if err := f.readSectors(b, e.disk.address, false); err != nil {
		t.Fatal(err)
	}
	return b, e.disk
}
