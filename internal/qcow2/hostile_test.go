package qcow2_test

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/qcow2"
)

// memory is a file in memory.
type memory struct{ b []byte }

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if end := off + int64(len(p)); end > int64(len(m.b)) {
		m.b = append(m.b, make([]byte, end-int64(len(m.b)))...)
	}
	return copy(m.b[off:], p), nil
}

func (m *memory) Truncate(n int64) error {
	m.b = append(m.b, make([]byte, max(0, n-int64(len(m.b))))...)[:n]
	return nil
}

func (m *memory) Sync() error { return nil }

// overlay returns a small image: data, a zeroed range, and data after 1 GiB.
func overlay(t testing.TB) []byte {
	t.Helper()
	const size = 1<<30 + 1<<20
	b := qcow2.NewBuilder(size)
	for _, g := range []qcow2.Range{
		{Off: 4096, Len: 8192, Kind: qcow2.Data},
		{Off: 65536, Len: 1 << 17, Kind: qcow2.Zero},
		{Off: 1 << 30, Len: 4096, Kind: qcow2.Data},
	} {
		if err := b.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	l, err := b.Layout()
	if err != nil {
		t.Fatal(err)
	}
	var m memory
	for _, off := range []int64{4096, 1 << 30} {
		if err := writeData(l, &m, bytes.Repeat([]byte{7}, 4096), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Finish(&m); err != nil {
		t.Fatal(err)
	}
	return m.b
}

// lie is an invalid value written into a small image.
type lie struct {
	at    int64
	value uint64
	bytes int // of value
}

func (l lie) tell(b []byte) []byte {
	b = bytes.Clone(b)
	var v [8]byte
	binary.BigEndian.PutUint64(v[:], l.value)
	copy(b[l.at:], v[8-l.bytes:])
	return b
}

const (
	cluster   = 128 << 10
	firstL1   = cluster     // its entries
	firstL2   = 4 * cluster // header, L1, refcount table, refcounts
	secondL2  = firstL2 + cluster
	copiedBit = 1 << 63
)

// An invalid image is refused with a descriptive error, by Open or by the first read, and costs no
// memory before.
func TestLyingImages(t *testing.T) {
	good := overlay(t)
	for name, c := range map[string]struct {
		lie  lie
		want string
	}{
		"magic":             {lie{0, 0x514649fa, 4}, "not a qcow2 version 2 or 3 image"},
		"version 1":         {lie{4, 1, 4}, "not a qcow2 version 2 or 3 image"},
		"version 4":         {lie{4, 4, 4}, "not a qcow2 version 2 or 3 image"},
		"backing file":      {lie{8, 0x200, 8}, "overlay on another image"},
		"small clusters":    {lie{20, 13, 4}, "2^13 bytes"},
		"large clusters":    {lie{20, 22, 4}, "2^22 bytes"},
		"huge clusters":     {lie{20, 1<<32 - 1, 4}, "2^4294967295 bytes"},
		"no disk":           {lie{24, 0, 8}, "0 bytes"},
		"huge disk":         {lie{24, 1<<50 + 1, 8}, "bytes: want 1-"},
		"negative disk":     {lie{24, 1 << 63, 8}, "bytes: want 1-"},
		"encrypted":         {lie{32, 2, 4}, "encrypted"},
		"larger than L1":    {lie{24, 1 << 50, 8}, "L1 table has 2 entries"},
		"short L1":          {lie{36, 1, 4}, "L1 table has 1 entries"},
		"no L1":             {lie{40, 0, 8}, "L1 table is at 0"},
		"odd L1":            {lie{40, 512, 8}, "L1 table is at 512"},
		"L1 behind the end": {lie{40, 1 << 40, 8}, "L1 table is at"},
		"negative L1":       {lie{40, 1<<64 - cluster, 8}, "L1 table is at"},
		"data file":         {lie{72, 1<<4 | 1<<2, 8}, "another file"},
		"marked as damaged": {lie{72, 1<<4 | 1<<1, 8}, "marked as damaged"},
		"unknown feature":   {lie{72, 1<<4 | 1<<5, 8}, "unsupported features (0x20)"},
		"zstd unsaid":       {lie{104, 1, 1}, "contradict"},
		"zstd said":         {lie{72, 1<<4 | 1<<3, 8}, "contradict"},
		"short header":      {lie{100, 72, 4}, "too short"},
		"odd L2":            {lie{firstL1, copiedBit | firstL2 + 512, 8}, "within a cluster"},
		"L2 behind the end": {lie{firstL1, copiedBit | 1<<40, 8}, "may have been cut off"},
		"one L2 twice":      {lie{firstL1 + 8, copiedBit | firstL2, 8}, "the same L2 table"},
		"odd data":          {lie{firstL2, copiedBit | 6*cluster + 4096, 8}, "data is at"},
		"data nowhere":      {lie{firstL2, 0, 8}, "data is at 0"},
		"data behind":       {lie{firstL2, copiedBit | 1<<40, 8}, "data is at"},
		"there and zero":    {lie{firstL2 + 8, 2<<32 | 2, 8}, "both there and zero"},
		"packed nowhere":    {lie{firstL2, 1 << 62, 8}, "compressed cluster is at 0"},
		"packed behind":     {lie{firstL2, 1<<62 | 1<<45, 8}, "compressed cluster is at"},
		"packed garbage":    {lie{firstL2, 1<<62 | 6*cluster, 8}, "compressed cluster at"},
		"second part":       {lie{secondL2 + 8, 1<<32 | 1, 8}, "offset 1073741824 of the disk"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b := c.lie.tell(good)
			err := readAll(b)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
				t.Errorf("%d bytes of memory", grown)
			}
		})
	}
	if err := readAll(good); err != nil {
		t.Error(err)
	}
	for _, n := range []int{0, 71, 103, 4096, cluster, firstL2 + 4096} {
		if err := readAll(good[:n]); err == nil {
			t.Errorf("the first %d bytes of an image are taken for one", n)
		}
	}
}

// readAll iterates over an image and reads a little of each range.
func readAll(b []byte) error {
	i, err := qcow2.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	p := make([]byte, 5000)
	for off, steps := int64(0), 0; steps < 2000; steps++ {
		r, ok, err := i.NextRange(off)
		if err != nil || !ok {
			return err
		}
		n := min(int64(len(p)), r.Len)
		if _, err := i.ReadAt(p[:n], r.Off); err != nil {
			return err
		}
		off = r.End()
	}
	return nil
}

// Several goroutines read an image at a time.
func TestConcurrentReading(t *testing.T) {
	i, err := qcow2.Open(bytes.NewReader(overlay(t)), 8*cluster)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, off := range []int64{0, 4096, 1 << 30, 1<<30 + 1<<20 - 10} {
				p := make([]byte, 8192)
				if n, err := i.ReadAt(p, off); err != nil && !errors.Is(err, io.EOF) || n == 0 {
					t.Errorf("%d bytes at %d, %v", n, off, err)
				}
			}
		})
	}
	all.Wait()
}

// image returns a file with words at offsets.
func image(size int, words map[int64]uint64) []byte {
	b := make([]byte, size)
	for at, v := range words {
		binary.BigEndian.PutUint64(b[at:], v)
	}
	return b
}

// Whatever the bytes are, reading them ends, stays within the disk, and is consistent.
func FuzzImage(f *testing.F) {
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, 9)
	_, _ = w.Write(make([]byte, 512))
	_ = w.Close()
	plain := image(2048, map[int64]uint64{0: 0x514649fb<<32 | 2, 20: 9 << 32, 24: 4096, 36: 1 <<
		32, 40: 512, 512: 1024, 1032: 1536, 1040: 1<<62 | 1600})
	copy(plain[1600:], packed.Bytes())
	extended := image(4<<14, map[int64]uint64{
		0: 0x514649fb<<32 | 3, 20: 14 << 32, 24: 1 << 20, 36: 1 << 32, 40: 1 << 14, 72: 1 << 4, 100: 104 << 32,
		1 << 14: 2 << 14, 2 << 14: 3 << 14, 2<<14 + 8: 6<<32 | 1, 2<<14 + 24: 1 << 40,
	})
	for _, b := range [][]byte{plain, extended} {
		if err := readAll(b); err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint64(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, at uint64) {
		if len(b) > 1<<20 {
			return
		}
		size, err := qcow2.DiskSize(bytes.NewReader(b))
		if err == nil && (size <= 0 || size > qcow2.MaxDiskBytes) {
			t.Fatalf("a disk of %d bytes", size)
		}
		i, err := qcow2.Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if i.Size() != size {
			t.Fatalf("%d bytes, and %d", i.Size(), size)
		}
		off := int64(at % uint64(size))
		for range 100 {
			r, ok, err := i.NextRange(off)
			if err != nil || !ok {
				return
			}
			if r.Off != off || r.Len <= 0 || r.End() > size {
				t.Fatalf("%+v at %d of %d", r, off, size)
			}
			p := bytes.Repeat([]byte{1}, int(min(r.Len, 100)))
			if n, err := i.ReadAt(p, off); err == nil &&
				(n != len(p) || r.Kind != qcow2.Data && len(bytes.Trim(p, "\x00")) > 0) {
				t.Fatalf("%d bytes %x of %+v", n, p, r)
			}
			off = r.End()
		}
	})
}
