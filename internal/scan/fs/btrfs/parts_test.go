package btrfs

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// The checksums are those that other programs publish for these bytes.
// Sources: RFC 3720 B.4, the specification of xxHash, FIPS 180-2, RFC 7693.
func TestChecksums(t *testing.T) {
	for kind, c := range []struct{ in, sum string }{
		{strings.Repeat("\x00", 32), "aa36918a"},
		{"", "99e9d85137db46ef"},
		{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"abc", "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"},
	} {
		sum, err := newChecksum(uint16(kind))
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(c.sum)
		if err != nil {
			t.Fatal(err)
		}
		if sum.size != len(want) || !sum.equal([]byte(c.in), want) {
			t.Errorf("kind %d: %x, want %s", kind, sum.of([]byte(c.in)), c.sum)
		}
		want[sum.size-1]++
		if sum.equal([]byte(c.in), want) {
			t.Errorf("kind %d: another checksum is equal", kind)
		}
	}
}

// Each kind of instruction of LZO1X does what its documentation says.
func TestLZO1X(t *testing.T) {
	const end = "\x11\x00\x00"
	for name, c := range map[string]struct{ in, want, bad string }{
		"literals":            {"\x15abcd" + end, "abcd", ""},
		"few literals":        {"\x13ab" + "\x00\x00" + end, "abbb", ""},
		"run":                 {"\x01abcd" + end, "abcd", ""},
		"long run":            {"\x00\x02" + strings.Repeat("r", 20) + end, strings.Repeat("r", 20), ""},
		"near":                {"\x15abcd" + "\x6d\x00" + "x" + end, "abcdabcdx", ""},
		"two bytes, literals": {"\x15abcd" + "\x45\x00x" + "\x04\x00" + end, "abcdcdcxcx", ""},
		"middle":              {"\x15abcd" + "\x22\x0c\x00" + end, "abcdabcd", ""},
		"overlap":             {"\x15abcd" + "\x20\x05\x00\x00" + end, "abcd" + strings.Repeat("d", 38), ""},
		"no end":              {"\x15abcd", "", "at byte 5 of 5"},
		"behind the end":      {"\x15abcd" + end + "x", "", "at byte 8 of 9"},
		"before the start":    {"\x15abcd" + "\x22\x10\x00" + end, "", "invalid LZO"},
		"empty":               {"", "", "at byte 0 of 0"},
		"too many literals":   {"\xff" + strings.Repeat("r", 300), "", "invalid LZO"},
		"too long":            {"\x15abcd" + "\x20\x00\x00\x00\x05\x00\x00" + end, "", "invalid LZO"},
	} {
		out := make([]byte, 64)
		n, err := unpackLZO1X(out, []byte(c.in))
		checkError(t, name, err, c.bad)
		if got := string(out[:n]); err == nil && got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The sectors of an extent in LZO are not longer than it says.
func TestLZOSectors(t *testing.T) {
	f := openCarried(t)
	packed, d := packedExtent(t, f, "lzo/numbers")
	size := int(d.unpacked)
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   string
	}{
		"unchanged":       {func(b []byte) []byte { return b }, ""},
		"nothing":         {func([]byte) []byte { return nil }, "0 bytes of LZO"},
		"cut":             {func(b []byte) []byte { return b[:100] }, "of LZO in 100"},
		"less than it is": {func(b []byte) []byte { le.PutUint32(b, 3); return b }, "3 bytes of LZO"},
		"a part of it":    {func(b []byte) []byte { le.PutUint32(b, 10); return b }, "a sector of LZO has"},
		"no sector":       {func(b []byte) []byte { le.PutUint32(b[4:], 0); return b }, "a sector of LZO has 0 bytes"},
		"long sector":     {func(b []byte) []byte { le.PutUint32(b[4:], 1<<31); return b }, "has 2147483648 bytes"},
		"end in a number": {
			func(b []byte) []byte { le.PutUint32(b, 8+le.Uint32(b[4:])+2); return b },
			"2 bytes behind",
		},
	} {
		out := make([]byte, size)
		checkError(t, name, unpackLZO(out, c.change(bytes.Clone(packed)), minSectorSize), c.want)
	}
}

// A frame of zstd ends before what fills the sector, and content that is missing is zero.
func TestZstdFrames(t *testing.T) {
	random := make([]byte, 100_000)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	for _, content := range [][]byte{nil, []byte("short"), bytes.Repeat([]byte("x"), maxUnpacked), random} {
		for _, checked := range []bool{false, true} {
			w, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(checked), zstd.WithWindowSize(maxUnpacked))
			if err != nil {
				t.Fatal(err)
			}
			packed := w.EncodeAll(content, nil)
			if len(content) == 0 {
				packed = []byte("\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00")
			}
			size := min(len(content)+100, maxUnpacked)
			got, err := unpack(packZstd, append(bytes.Clone(packed), make([]byte, 300)...), size, minSectorSize)
			if err != nil || !bytes.Equal(got[:len(content)], content) ||
				len(bytes.Trim(got[len(content):], "\x00")) > 0 {
				t.Errorf("%d bytes: %v", len(content), err)
			}
			_, err = unpack(packZstd, packed[:len(packed)-1], size, minSectorSize)
			checkError(t, fmt.Sprint(len(content), " bytes, cut"), err, "invalid zstd")
			if len(content) > 0 {
				_, err = unpack(packZstd, packed, len(content)-1, minSectorSize)
				checkError(t, fmt.Sprint(len(content), " bytes in fewer"), err, "invalid zstd")
			}
		}
	}
}

func openCarried(t testing.TB) *FS {
	t.Helper()
	b := carried(t, "mixed")
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A damaged copy of content is read from the other one.
func TestCopiesOfContent(t *testing.T) {
	b := carried(t, "mixed")
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	c := &changer{t, b, f}
	at := c.content("letters")
	sector := bytes.Clone(b[at:][:minSectorSize])
	k := len(f.device.chunks) - 1
	for f.device.chunks[k].offsets[0] > at {
		k--
	}
	second := int64(len(b)) - 1<<20
	one := &f.device.chunks[k]
	one.copies, one.offsets[1] = 2, second-(at-one.offsets[0])
	copy(b[second:], sector)
	b[at]++
	address := one.start + uint64(at-one.offsets[0])
	got := make([]byte, minSectorSize)
	if err := f.readSectors(got, address, false); err != nil || !bytes.Equal(got, sector) {
		t.Errorf("the other copy: %v", err)
	}
	b[second]++
	checkError(t, "both", f.readSectors(got, address, false), "is not what its checksum says")
	if err := f.readSectors(got, address, true); err != nil || got[0] != sector[0]+1 {
		t.Errorf("content without checksums: %v", err)
	}
}

// Parts of a file are read at any offset.
func TestParts(t *testing.T) {
	f := openCarried(t)
	for _, path := range []string{"letters", "hole", "zlib/clone", "lzo/small", "hello"} {
		st, err := f.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		content := &inodeContent{fs: f, inode: st.Sys().(*inode)}
		all := make([]byte, st.Size())
		if _, err := content.ReadAt(all, 0); err != nil {
			t.Fatal(err)
		}
		for _, off := range []int64{0, 1, 4095, 4096, 4097, 79_999, 80_000, 100_000, 131_071, 131_073} {
			for _, count := range []int64{1, 10, 4096, 5000, 140_000} {
				if off+count > st.Size() {
					continue
				}
				b := make([]byte, count)
				if n, err := content.ReadAt(b, off); err != nil || n != len(b) || !bytes.Equal(b, all[off:][:count]) {
					t.Errorf("%s: %d bytes at %d: %d, %v", path, count, off, n, err)
				}
			}
		}
	}
}

// Trees are searched at and between keys, and to their end.
func TestSeek(t *testing.T) {
	f := openCarried(t)
	d, root := f.device, f.root.in.tree
	if root.level == 0 {
		t.Fatal("the tree has one node")
	}
	var keys []key
	c, err := d.seekFirst(root)
	for ; err == nil && c.valid(); err = c.next() {
		keys = append(keys, c.key())
	}
	if err != nil || len(keys) < 500 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for i, k := range keys {
		at, err := d.seek(root, k)
		if err != nil || !at.valid() || at.key() != k {
			t.Fatalf("%v: %v", k, err)
		}
		behind := key{k.object, k.kind, k.offset + 1}
		if i+1 < len(keys) && keys[i+1] == behind || k.offset == 1<<64-1 {
			continue
		}
		next, err := d.seek(root, behind)
		if err != nil || next.valid() != (i+1 < len(keys)) || next.valid() && next.key() != keys[i+1] {
			t.Fatalf("behind %v: %v", k, err)
		}
		if last, err := d.seekLast(root, behind); err != nil || !last.valid() || last.key() != k {
			t.Fatalf("the last at %v: %v", behind, err)
		}
	}
	if c, err := d.seek(root, key{}); err != nil || c.key() != keys[0] {
		t.Errorf("before all: %v", err)
	}
	if c, err := d.seekLast(root, key{}); err != nil || c.valid() {
		t.Errorf("the last before all: %v", err)
	}
}

// A node whose entries contradict each other or the node above is refused.
func TestNodes(t *testing.T) {
	f := openCarried(t)
	d := f.device
	root, err := d.readNode(f.root.in.tree)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := d.readNode(root.child(1))
	if err != nil {
		t.Fatal(err)
	}
	const second = nodeHeaderSize + leafItemSize
	for name, c := range map[string]struct {
		change func(b []byte)
		want   string
	}{
		"unchanged":     {func([]byte) {}, ""},
		"address":       {func(b []byte) { b[50]++ }, "says that it is at"},
		"file system":   {func(b []byte) { b[32]++ }, "is of another file system"},
		"level":         {func(b []byte) { b[100] = 8 }, "has level 8"},
		"many entries":  {func(b []byte) { le.PutUint32(b[96:], 1<<31) }, "has 2147483648 entries"},
		"more entries":  {func(b []byte) { le.PutUint32(b[96:], 150) }, "the node at"},
		"equal keys":    {func(b []byte) { copy(b[second:second+keySize], b[nodeHeaderSize:]) }, "not in order"},
		"data in list":  {func(b []byte) { le.PutUint32(b[second+keySize:], 10) }, "bytes at byte 10"},
		"data past end": {func(b []byte) { le.PutUint32(b[second+keySize+4:], 1<<32-1) }, "4294967295 bytes at byte"},
	} {
		b := bytes.Clone(leaf.b)
		c.change(b)
		f.seal(b)
		_, err := d.superblock.parseNode(leaf.address, b)
		checkError(t, name, err, c.want)
	}
	for name, change := range map[string]func(b []byte){
		"first key": func(b []byte) { b[nodeHeaderSize+9]++ },
		"last key":  func(b []byte) { le.PutUint64(b[nodeHeaderSize+(leaf.count-1)*leafItemSize:], 1<<50) },
		"empty":     func(b []byte) { le.PutUint32(b[96:], 0) },
	} {
		b := bytes.Clone(leaf.b)
		change(b)
		f.seal(b)
		n, err := d.superblock.parseNode(leaf.address, b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d.nodes = inodefs.NewCache[uint64](nodeCacheBytes, func(n *node) int { return len(n.b) })
		d.nodes.Put(leaf.address, n)
		c, err := d.seekFirst(f.root.in.tree)
		for err == nil && c.valid() {
			err = c.next()
		}
		checkError(t, name, err, "has other keys than the node above it says")
	}
}
