package apfs_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"io/fs"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/keybag"
)

// small are containers of few blocks with many features.
func small(f *testing.F) []*image {
	f.Helper()
	list := []apfstest.File{
		{Path: "a/b", Data: text(5000), Scattered: true},
		{Path: "a/ü", Data: []byte("x")},
		{Path: "l", Target: "a/b"},
		{Path: "z", Data: text(300), Compression: 3},
		{Path: "v", Data: text(300), Compression: 8},
		{Path: "f", Data: text(300), Compression: 12},
		{Path: "x", Xattrs: map[string][]byte{"n": []byte("v"), "m": noise(1, 5000)}},
		{Path: "s", Same: "x"},
	}
	var out []*image
	for _, v := range []apfstest.Volume{
		{Files: list, NodeRecords: 8},
		{Files: list, Sensitive: true},
		{Files: list, Sealed: true, NodeRecords: 8},
		{Files: list[:2], Snapshots: []apfstest.Snapshot{{Name: "s", Files: list[2:]}}},
		{Files: list, Passwords: passwords[:1]},
	} {
		m := &image{}
		if _, err := apfstest.Write(m,
			apfstest.Container{Volumes: []apfstest.Volume{v}, Scattered: v.Sealed}); err != nil {
			f.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// reseal recomputes the checksum of every block that has a header, so that changes pass
// verification.
func reseal(b []byte) {
	for at := 0; at+apfstest.BlockSize <= len(b); at += apfstest.BlockSize {
		if block := b[at : at+apfstest.BlockSize]; binary.LittleEndian.Uint64(block[16:]) != 0 &&
			binary.LittleEndian.Uint32(block[24:]) != 0 {
			apfstest.Seal(block)
		}
	}
}

// FuzzContainer changes bytes of containers and recomputes their checksums: the result may be
// wrong, but reading ends.
func FuzzContainer(f *testing.F) {
	images := small(f)
	for i := range images {
		f.Add(i, []byte{}, true)
		f.Add(i, []byte{0, 0, 10, 0, 36, 255, 0, 0, 20, 0, 40, 7}, true)
		f.Add(i, bytes.Repeat([]byte{0, 0, 12, 4, 1, 3, 0, 0, 13, 15, 232, 1}, 3), false)
	}
	f.Fuzz(func(_ *testing.T, which int, changes []byte, seal bool) {
		b := bytes.Clone(images[uint(which)%uint(len(images))].b)
		// Each change is five bytes of offset and one of value.
		for ; len(changes) >= 6; changes = changes[6:] {
			block := int(changes[2])%(len(b)/apfstest.BlockSize)*apfstest.BlockSize + int(changes[3])%16*256 +
				int(changes[4])
			b[block%len(b)] = changes[5]
		}
		if seal {
			reseal(b)
		}
		_ = readAll(b)
	})
}

// readAll reads the whole container, up to a sensible limit, and returns how many of its volumes are readable.
func readAll(b []byte) (readable int) {
	c, err := apfs.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return 0
	}
	for _, v := range c.Volumes() {
		if v.Encrypted() {
			_ = v.Unlock(context.Background(), [][]byte{[]byte(passwords[0])}, keybag.NewBudget())
		}
		list, _ := v.Snapshots()
		for _, s := range list[:min(len(list), 3)] {
			if f, err := v.SnapshotFS(s.Name); err == nil {
				_, _ = f.ReadDir(".")
			}
		}
		f, err := v.FS()
		if err != nil {
			continue
		}
		readable++
		_, _ = f.Firmlinks()
		seen := 0
		_ = fs.WalkDir(f, ".", func(p string, _ fs.DirEntry, _ error) error {
			if seen++; seen > 100 {
				return fs.SkipAll
			}
			names, _ := f.Xattrs(p)
			for _, n := range names[:min(len(names), 5)] {
				_, _ = f.Xattr(p, n)
			}
			if file, err := f.Open(p); err == nil {
				_, _ = io.CopyN(io.Discard, file, 1<<20)
			}
			return nil
		})
	}
	return readable
}
