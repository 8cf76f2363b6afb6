package decmpfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs/decmpfstest"
)

// Compressed blocks that are stored uncompressed begin with a byte that marks them.
func TestExpand(t *testing.T) {
	for _, c := range []struct {
		kind uint32
		src  string
		want string
		bad  bool
	}{
		{kindPlain, "plain", "plain", false},
		{kindPlain, "", "", false},
		{kindZlib, "", "", true},
		{kindZlib, "\xffstored", "stored", false},
		{kindZlib, "\x0fstored", "stored", false},
		{kindZlib, "garbage", "", true},
		{kindRaw, "xstored", "stored", false},
		{kindRaw, "", "", true},
		{kindLZVN, "\x06stored", "stored", false},
		{kindLZVN, "\x0fgarbage", "", true},
		{kindLZFSE, "xstored", "stored", false},
		{kindLZFSE, "bgarbage", "", true},
		{kindLZBitmap, "\xffstored", "stored", false},
		{kindLZBitmap, "garbage", "", true},
		{99, "x", "", true},
	} {
		got, err := decompress(c.kind, []byte(c.src), 6)
		if string(got) != c.want && !c.bad || (err != nil) != c.bad {
			t.Errorf("kind %d, %q: %q, %v", c.kind, c.src, got, err)
		}
	}
}

// packedOf returns a compressed file of raw blocks.
func packedOf(size int64, src []byte) *File {
	return &File{cache: NewCache(), number: 7, kind: kindRaw, size: size, src: sourceOf(src)}
}

func sourceOf(b []byte) Source { return Source{bytes.NewReader(b), int64(len(b))} }

var errUnreadable = errors.New("unreadable")

// unreadable is a source that cannot be read.
type unreadable struct{}

func (unreadable) ReadAt([]byte, int64) (int, error) { return 0, errUnreadable }

// The table of a resource fork names the blocks, or is refused.
func TestTableOfBlocks(t *testing.T) {
	fork := func(count, start, length uint32) []byte { // one block
		b := binary.BigEndian.AppendUint32(nil, 16)
		b = append(b, make([]byte, 16)...)
		b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, count), start), length)
		return append(b, "xcontent"...)
	}
	for name, c := range map[string]struct {
		size int64
		src  []byte
		want string
		bad  string
	}{
		"one block":       {7, fork(1, 12, 8), "content", ""},
		"more than used":  {7, fork(2, 12, 8), "content", ""},
		"fewer":           {7, fork(0, 12, 8), "", "has 0 of 1 blocks"},
		"no table":        {7, fork(1, 12, 8)[:28], "", "its table of 1 blocks does not fit"},
		"table alone":     {7, fork(1, 12, 8)[:32], "", "ends after 32 bytes"},
		"no count":        {7, fork(1, 12, 8)[:20], "", "ends after 20 bytes"},
		"no header":       {7, fork(1, 12, 8)[:15], "", "ends after 15 bytes"},
		"behind the end":  {7, fork(1, 13, 8), "", "ends after 40 bytes"},
		"far behind":      {7, fork(1, math.MaxUint32, 8), "", "ends after 40 bytes"},
		"too long":        {7, fork(1, 12, maxPackedBytes+1), "", "compressed bytes"},
		"another length":  {8, fork(1, 12, 8), "", "decompresses to 7 bytes, not 8"},
		"nothing at all":  {0, fork(0, 0, 0), "", ""},
		"most is allowed": {7, fork(1, 12, maxPackedBytes), "", "ends after 40 bytes"},
	} {
		p := packedOf(c.size, c.src)
		err := p.readBlockTable()
		var got []byte
		if err == nil {
			got, err = io.ReadAll(io.NewSectionReader(p, 0, c.size))
		}
		if string(got) != c.want || (err == nil) != (c.bad == "") ||
			err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.bad)
		}
	}
	p := packedOf(7, fork(1, 12, 8))
	if err := p.readBlockTable(); err != nil {
		t.Fatal(err)
	}
	for off, want := range map[int64]error{-1: errNegativeOffset, 7: io.EOF, 8: io.EOF} {
		if n, err := p.ReadAt(make([]byte, 3), off); n != 0 || !errors.Is(err, want) {
			t.Errorf("at %d: %d, %v", off, n, err)
		}
	}
	if n, err := p.ReadAt(make([]byte, 3), 5); n != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("over the end: %d, %v", n, err)
	}
	if n, err := p.ReadAt(make([]byte, 2), 5); n != 2 || err != nil {
		t.Errorf("up to the end: %d, %v", n, err)
	}
	p.src.ReaderAt = unreadable{}
	if _, err := p.ReadAt(make([]byte, 2), 0); err != nil {
		t.Errorf("a block that is kept is read again: %v", err)
	}
	p.cache = NewCache()
	if _, err := p.ReadAt(make([]byte, 2), 0); !errors.Is(err, errUnreadable) {
		t.Errorf("%v", err)
	}
	for _, c := range [][2]int64{{-1, 1}, {40, 1}, {41, 0}, {39, 2}} {
		if err := p.readSource(make([]byte, c[1]), c[0]); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes at %d: %v", c[1], c[0], err)
		}
	}
	p.src = sourceOf(make([]byte, 40))
	if err := p.readSource(make([]byte, 2), 38); err != nil {
		t.Errorf("the last bytes: %v", err)
	}
}

// Every kind that is read has the content that was compressed, also in parts.
func TestKinds(t *testing.T) {
	plain := bytes.Repeat([]byte("content that repeats, and "), 6000)
	for _, kind := range []uint32{1, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14} {
		for _, stored := range []bool{false, true} {
			attr, fork := decmpfstest.Compress(kind, plain, stored)
			f, err := Open(sourceOf(attr), func() (Source, error) { return sourceOf(fork), nil }, NewCache(), 1)
			if err != nil {
				t.Fatalf("kind %d: %v", kind, err)
			}
			got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
			if err != nil || !bytes.Equal(got, plain) {
				t.Errorf("kind %d, stored %v: %d bytes, %v", kind, stored, len(got), err)
			}
			part := make([]byte, 100)
			const at = plainBlockBytes - 50
			if n, err := f.ReadAt(part, at); n != len(part) || err != nil || !bytes.Equal(part, plain[at:at+100]) {
				t.Errorf("kind %d, stored %v: %q, %v", kind, stored, part[:n], err)
			}
		}
	}
}

// A large file that is one block is decompressed once, whatever the parts are in which it is read.
func TestLargeBlock(t *testing.T) {
	attr, _ := decmpfstest.Compress(kindZlib, make([]byte, maxInlineBytes), false)
	f, err := Open(sourceOf(attr), nil, NewCache(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.ReadAt(make([]byte, 100), 5); n != 100 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	f.src.ReaderAt = unreadable{}
	if n, err := io.Copy(io.Discard, io.NewSectionReader(f, 0, f.Size())); n != maxInlineBytes || err != nil {
		t.Errorf("it is decompressed again: %d bytes, %v", n, err)
	}
}

// FuzzFile reads files whose attribute and resource fork have some bytes changed.
func FuzzFile(f *testing.F) {
	plain := bytes.Repeat([]byte("content that repeats, and "), 6000)
	for _, kind := range []uint32{1, 3, 4, 8, 10, 12, 14} {
		attr, fork := decmpfstest.Compress(kind, plain, false)
		f.Add(attr, fork)
	}
	f.Fuzz(func(t *testing.T, attr, fork []byte) {
		p, err := Open(sourceOf(attr), func() (Source, error) { return sourceOf(fork), nil }, NewCache(), 1)
		if err != nil {
			return
		}
		b := make([]byte, 1<<20)
		for _, at := range []int64{0, p.Size() / 2, p.Size() - 1000} {
			if n, _ := p.ReadAt(b, max(0, at)); int64(n) > p.Size() {
				t.Errorf("%d bytes of %d", n, p.Size())
			}
		}
	})
}
