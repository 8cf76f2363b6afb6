package qcow2_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/qcow2"
)

// changes are random ranges of a disk and its content: base, and the result of applying the ranges.
type changes struct {
	ranges []qcow2.Range
	want   []byte
}

func randomChanges(r *rand.Rand, base []byte, n int) changes {
	size := int64(len(base))
	kinds := make([]qcow2.Kind, (size+qcow2.SubclusterBytes-1)/qcow2.SubclusterBytes)
	for range n {
		at, kind := r.IntN(len(kinds)), qcow2.Kind(1+r.IntN(2))
		for k := at; k < min(len(kinds), at+1+r.IntN(80)); k++ {
			kinds[k] = kind
		}
	}
	c := changes{want: bytes.Clone(base)}
	for k := 0; k < len(kinds); {
		end := k
		for end < len(kinds) && kinds[end] == kinds[k] {
			end++
		}
		off := int64(k) * qcow2.SubclusterBytes
		g := qcow2.Range{Off: off, Len: min(size, int64(end)*qcow2.SubclusterBytes) - off, Kind: kinds[k]}
		c.ranges = append(c.ranges, g)
		switch part := c.want[g.Off:g.End()]; g.Kind {
		case qcow2.Zero:
			clear(part)
		case qcow2.Data:
			_, _ = rand.NewChaCha8([32]byte{byte(r.Uint32())}).Read(part)
		}
		k = end
	}
	return c
}

func (c changes) layout(t testing.TB) *qcow2.Layout {
	t.Helper()
	b := qcow2.NewBuilder(int64(len(c.want)))
	for _, g := range c.ranges {
		if err := b.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	l, err := b.Layout()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// pieces cuts the data ranges into odd pieces in random order.
func (c changes) pieces(r *rand.Rand) []qcow2.Range {
	var out []qcow2.Range
	for _, g := range c.ranges {
		for off := g.Off; g.Kind == qcow2.Data && off < g.End(); {
			n := min(g.End()-off, 1+r.Int64N(200_000))
			out = append(out, qcow2.Range{Off: off, Len: n})
			off += n
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// checkOverlay compares what QEMU and this package read above the base.
func checkOverlay(t testing.TB, path string, base, want []byte) {
	t.Helper()
	dir := filepath.Dir(path)
	under, wanted := filepath.Join(dir, "base"), filepath.Join(dir, "want")
	for name, b := range map[string][]byte{under: base, wanted: want} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stacked := qcow2.Stack(qcow2.RawLayer(sparse{bytes.NewReader(base)}, int64(len(base))), openImage(t, path))
	same(t, stacked, append(bytes.Clone(want), make([]byte, stacked.Size()-int64(len(want)))...))
	if out := run(t, "qemu-img", "check", "-f", "qcow2", path); !strings.Contains(out, "No errors") {
		t.Error(out)
	}
	run(t, "qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", under, path)
	run(t, "qemu-img", "compare", "-f", "qcow2", "-F", "raw", path, wanted)
}

// An overlay whose data was written in random order from several goroutines, interrupted and
// resumed later, is the changed disk for QEMU.
func TestOverlay(t *testing.T) {
	tools(t)
	for _, size := range []int{4096, 1<<20 + 512, 5<<20 + 4096 + 100, 3 << 20} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(size), 2))
			base := make([]byte, size)
			for k := 0; k < size; k += 9000 {
				base[k] = byte(k)
			}
			c := randomChanges(r, base, 12)
			path := filepath.Join(t.TempDir(), "o")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			pieces := c.pieces(r)
			half := len(pieces) / 2
			first := c.layout(t)
			write(t, first, f, c.want, pieces[:half])
			if _, err := qcow2.Open(f, first.FileSize()); err == nil {
				t.Error("a part of an overlay opens as an image")
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}

			f, err = os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			again := c.layout(t) // of another process, with the ranges in another order
			shuffled := changes{ranges: append([]qcow2.Range(nil), c.ranges...), want: c.want}
			r.Shuffle(len(shuffled.ranges), func(i, j int) {
				shuffled.ranges[i], shuffled.ranges[j] = shuffled.ranges[j], shuffled.ranges[i]
			})
			if l := shuffled.layout(t); l.FileSize() != again.FileSize() || l.DataBytes() != again.DataBytes() ||
				l.ZeroBytes() != again.ZeroBytes() {
				t.Error("the order of the ranges changes the layout")
			}
			write(t, shuffled.layout(t), f, c.want, pieces[half:])
			if err := again.Finish(f); err != nil {
				t.Fatal(err)
			}
			if info, err := f.Stat(); err != nil || info.Size() != again.FileSize() {
				t.Errorf("%d bytes, %v; said %d", info.Size(), err, again.FileSize())
			}
			checkOverlay(t, path, base, c.want)
		})
	}
}

// writeData writes bytes of the disk at their offsets in the file. All of them must be within
// ranges of data.
func writeData(l *qcow2.Layout, w io.WriterAt, p []byte, off int64) error {
	for len(p) > 0 {
		at, n := l.FileOffset(off)
		if n == 0 {
			return fmt.Errorf("the overlay has no data at %d", off)
		}
		part := p[:min(int64(len(p)), n)]
		if _, err := w.WriteAt(part, at); err != nil {
			return err
		}
		p, off = p[len(part):], off+int64(len(part))
	}
	return nil
}

// write writes pieces from four goroutines.
func write(t *testing.T, l *qcow2.Layout, f *os.File, disk []byte, pieces []qcow2.Range) {
	t.Helper()
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := k; i < len(pieces); i += 4 {
				if err := writeData(l, f, disk[pieces[i].Off:pieces[i].End()], pieces[i].Off); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// An overlay over a large disk, with changes at both ends, has what was copied to it.
func TestFill(t *testing.T) {
	tools(t)
	const size = 3<<30 + 4096 + 512
	b := qcow2.NewBuilder(size)
	for _, g := range []qcow2.Range{
		{Off: 8192, Len: 300 << 10, Kind: qcow2.Data},
		{Off: 1 << 30, Len: 1 << 30, Kind: qcow2.Zero},
		{Off: size - 512, Len: 512, Kind: qcow2.Data},
	} {
		if err := b.Add(g); err != nil {
			t.Fatal(err)
		}
	}
	l, err := b.Layout()
	if err != nil {
		t.Fatal(err)
	}
	if l.DataBytes() != 300<<10+4096 || l.ZeroBytes() != 1<<30 {
		t.Errorf("%d bytes, %d zeroed", l.DataBytes(), l.ZeroBytes())
	}
	path := filepath.Join(t.TempDir(), "o")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := l.CopyData(t.Context(), f, counting(size)); err != nil {
		t.Fatal(err)
	}
	if err := l.Finish(f); err != nil {
		t.Fatal(err)
	}
	if out := run(t, "qemu-img", "check", "-f", "qcow2", path); !strings.Contains(out, "No errors") {
		t.Error(out)
	}
	i := openImage(t, path)
	for _, at := range []int64{8192, 8192 + 300<<10 - 1000, size - 512} {
		got, want := make([]byte, 512), make([]byte, 512)
		if _, err := i.ReadAt(got, at); err != nil {
			t.Fatal(err)
		}
		if _, err := counting(size).ReadAt(want, at); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("other bytes at %d", at)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.CopyData(ctx, f, counting(size)); !errors.Is(err, context.Canceled) {
		t.Errorf("a copy that is given up: %v", err)
	}
}

// counting is a disk whose bytes encode their offsets.
type counting int64

func (c counting) ReadAt(p []byte, off int64) (int, error) {
	for k := range p {
		at := off + int64(k)
		if at >= int64(c) {
			return k, io.EOF
		}
		p[k] = byte(at>>12 ^ at)
	}
	return len(p), nil
}

// Ranges that no overlay can contain are refused.
func TestBuilderRefuses(t *testing.T) {
	for name, g := range map[string]qcow2.Range{
		"before":     {Off: -4096, Len: 4096, Kind: qcow2.Data},
		"negative":   {Off: 4096, Len: -4096, Kind: qcow2.Data},
		"behind":     {Off: 1 << 20, Len: 4096, Kind: qcow2.Zero},
		"overflow":   {Off: 4096, Len: 1<<63 - 1, Kind: qcow2.Data},
		"wraps":      {Off: 8192, Len: 1<<63 - 4096, Kind: qcow2.Data},
		"begins off": {Off: 512, Len: 3584, Kind: qcow2.Data},
		"within":     {Off: 512, Len: 4096, Kind: qcow2.Data},
		"half block": {Off: 4096, Len: 512, Kind: qcow2.Zero},
	} {
		if err := qcow2.NewBuilder(1 << 20).Add(g); err == nil {
			t.Errorf("%s: %+v is taken", name, g)
		}
	}
	for name, g := range map[string]qcow2.Range{
		"nothing":         {Kind: qcow2.Data},
		"the last sector": {Len: 1 << 10, Kind: qcow2.Data},
		"the last byte":   {Len: 1000, Kind: qcow2.Zero},
		"an absent one":   {Len: 1000},
	} {
		if err := qcow2.NewBuilder(1000).Add(g); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := qcow2.NewBuilder(qcow2.MaxDiskBytes).Layout(); err != nil {
		t.Errorf("the largest disk: %v", err)
	}
	b := qcow2.NewBuilder(1 << 20)
	_ = b.Add(qcow2.Range{Off: 8192, Len: 4096, Kind: qcow2.Zero})
	_ = b.Add(qcow2.Range{Off: 4096, Len: 8192, Kind: qcow2.Data})
	if _, err := b.Layout(); err == nil {
		t.Error("a block that is data and zero is taken")
	}
	for _, size := range []int64{-1, 0, qcow2.MaxDiskBytes + 1} {
		if _, err := qcow2.NewBuilder(size).Layout(); err == nil {
			t.Errorf("a disk of %d bytes is taken", size)
		}
	}
}

// Every byte of data has one unique offset, and nothing else has one.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		c := randomChanges(r, make([]byte, 1+rapid.IntRange(0, 1<<20).Draw(rt, "size")),
			rapid.IntRange(0, 20).Draw(rt, "ranges"))
		l := c.layout(t)
		taken := map[int64]bool{}
		for _, g := range c.ranges {
			for off := g.Off; off < g.End(); {
				at, n := l.FileOffset(off)
				if g.Kind != qcow2.Data {
					if inner, left := l.FileOffset(off + 1); at != 0 || n != 0 || inner != 0 || left != 0 {
						rt.Fatalf("%+v has a place", g)
					}
					off += qcow2.SubclusterBytes
					continue
				}
				if n <= 0 || at%qcow2.SubclusterBytes != off%qcow2.SubclusterBytes || at+n > l.FileSize() || taken[at] {
					rt.Fatalf("byte %d lies at %d+%d", off, at, n)
				}
				taken[at] = true
				off += qcow2.SubclusterBytes
			}
		}
		if _, n := l.FileOffset(-1); n != 0 {
			rt.Fatal("a place before the disk")
		}
		if err := writeData(l, nil, nil, 0); err != nil {
			rt.Fatal(err)
		}
	})
	l := changes{want: make([]byte, 1<<20)}.layout(t)
	if err := writeData(l, nil, []byte{1}, 0); err == nil {
		t.Error("data goes where the overlay has none")
	}
}
