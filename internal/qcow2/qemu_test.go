package qcow2_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// tools skips a test without QEMU's tools.
func tools(t testing.TB) {
	t.Helper()
	for _, tool := range []string{"qemu-img", "qemu-io"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
}

func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

func openImage(t testing.TB, path string) *qcow2.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	i, err := qcow2.Open(f, info.Size())
	if err != nil {
		t.Fatalf("%s: %v", filepath.Base(path), err)
	}
	return i
}

// scatter writes to an image as a guest would, with qemu-io.
func scatter(t testing.TB, path string, size int64, r *rand.Rand, writes int) {
	t.Helper()
	args := []string{"qemu-io", "-f", "qcow2"}
	for range writes {
		at := r.Int64N(size/512) * 512
		n := min(512*(1+r.Int64N(400)), size-at)
		what := []string{"write -P " + strconv.Itoa(1+r.IntN(255)), "write -P 7", "write -z", "discard"}[r.IntN(4)]
		args = append(args, "-c", fmt.Sprintf("%s %d %d", what, at, n))
	}
	run(t, append(args, path)...)
}

// same compares a layer with QEMU's content of an image, in pieces of odd lengths, and its ranges
// with its bytes.
func same(t testing.TB, l qcow2.Layer, want []byte) {
	t.Helper()
	if l.Size() > int64(len(want)) || l.Size() < int64(len(want))-511 {
		t.Fatalf("%d bytes, want %d", l.Size(), len(want))
	}
	want = want[:l.Size()]
	r := rand.New(rand.NewPCG(3, 4))
	for off := int64(0); off < l.Size(); {
		p := make([]byte, 1+r.IntN(300_000))
		n, err := l.ReadAt(p, off)
		if err != nil && !(errors.Is(err, io.EOF) && off+int64(len(p)) > l.Size()) {
			t.Fatalf("read at %d: %v", off, err)
		}
		if !bytes.Equal(p[:n], want[off:off+int64(n)]) {
			t.Fatalf("other bytes at %d+%d", off, n)
		}
		off += int64(n)
	}
	end := int64(0)
	for {
		g, ok, err := l.NextRange(end)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if g.Off != end || g.Len <= 0 {
			t.Fatalf("range %+v at %d", g, end)
		}
		if g.Kind != qcow2.Data && !zeros(want[g.Off:g.End()]) {
			t.Fatalf("%+v holds data", g)
		}
		end = g.End()
	}
	if end != l.Size() {
		t.Fatalf("the ranges end at %d", end)
	}
}

// zeros reports whether all bytes are zero: bytes.Count is fast under the race detector, too.
func zeros(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }

func rawOf(t testing.TB, image string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "raw")
	run(t, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", image, out)
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Images of every kind that qemu-img makes read as QEMU reads them.
func TestForeignImages(t *testing.T) {
	tools(t)
	const size = 5<<20 + 3<<10 + 512
	for _, options := range fulltest.Some(t, 4, []string{
		"compat=0.10", "compat=1.1", "cluster_size=512", "cluster_size=4k", "cluster_size=64k", "cluster_size=128k",
		"cluster_size=2M",
		"extended_l2=on,cluster_size=16k", "extended_l2=on,cluster_size=128k", "extended_l2=on,cluster_size=2M",
		"compression_type=zstd", "compression_type=zstd,cluster_size=2M", "compat=0.10,cluster_size=2M",
		"extended_l2=on,cluster_size=64k,compression_type=zstd", "lazy_refcounts=on", "refcount_bits=1",
		"preallocation=metadata",
	}) {
		t.Run(options, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "i")
			run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", options, path, strconv.Itoa(size))
			r := rand.New(rand.NewPCG(1, 2))
			scatter(t, path, size, r, 40)
			want := rawOf(t, path)
			same(t, openImage(t, path), want)

			packed := filepath.Join(t.TempDir(), "c")
			options := strings.TrimSuffix(options, ",preallocation=metadata")
			if options == "preallocation=metadata" {
				return
			}
			run(t, "qemu-img", "convert", "-c", "-f", "qcow2", "-O", "qcow2", "-o", options, path, packed)
			same(t, openImage(t, packed), want)
			scatter(t, packed, size, r, 15) // plain clusters over compressed ones
			same(t, openImage(t, packed), rawOf(t, packed))
		})
	}
}

// Ranges without content in an image are Absent, and its zero ranges are Zero.
func TestKinds(t *testing.T) {
	tools(t)
	path := filepath.Join(t.TempDir(), "i")
	run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "extended_l2=on,cluster_size=128k", path, "4G")
	run(t, "qemu-io", "-f", "qcow2", "-c", "write -P 1 4k 8k", "-c", "write -z 1M 256k", "-c", "write -z 3G 4k", "-c",
		"write -P 2 3221233664 4k", path)
	i := openImage(t, path)
	var got []qcow2.Range
	for off := int64(0); ; {
		r, ok, err := i.NextRange(off)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		got = append(got, r)
		off = r.End()
	}
	want := []qcow2.Range{
		{Off: 0, Len: 4 << 10},
		{Off: 4 << 10, Len: 8 << 10, Kind: qcow2.Data},
		{Off: 12 << 10, Len: 1<<20 - 12<<10},
		{Off: 1 << 20, Len: 256 << 10, Kind: qcow2.Zero},
		{Off: 1<<20 + 256<<10, Len: 3<<30 - 1<<20 - 256<<10},
		{Off: 3 << 30, Len: 4 << 10, Kind: qcow2.Zero},
		{Off: 3<<30 + 4<<10, Len: 4 << 10},
		{Off: 3<<30 + 8<<10, Len: 4 << 10, Kind: qcow2.Data},
		{Off: 3<<30 + 12<<10, Len: 1<<30 - 12<<10},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	start, end, err := i.NextData(2 << 30)
	if err != nil || start != 3<<30+8<<10 || end != start+4<<10 {
		t.Errorf("the next data is at %d-%d, %v", start, end, err)
	}
	if start, end, err = i.NextData(end); err != nil || start != end {
		t.Errorf("behind the last data, there is some at %d-%d, %v", start, end, err)
	}
}

// Overlays on each other read as QEMU reads the chain, also where a lower one is shorter.
func TestStack(t *testing.T) {
	tools(t)
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(5, 6))
	sizes := []int64{5 << 20, 4<<20 + 512, 8 << 20, 8<<20 + 64<<10}
	var layers []qcow2.Layer
	under := ""
	for k, size := range sizes {
		path := filepath.Join(dir, strconv.Itoa(k))
		run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "extended_l2=on,cluster_size=128k", path,
			strconv.FormatInt(size, 10))
		if under != "" {
			run(t, "qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", under, path)
		}
		scatter(t, path, size, r, 12)
		under = path
	}
	want := rawOf(t, under)
	for k := range sizes {
		path := filepath.Join(dir, strconv.Itoa(k))
		run(t, "qemu-img", "rebase", "-u", "-f", "qcow2", "-b", "", path)
		layers = append(layers, openImage(t, path))
	}
	same(t, qcow2.Stack(layers...), want)
	same(t, qcow2.Stack(qcow2.Stack(layers[:2]...), qcow2.Stack(layers[2:]...)), want)
	base := make([]byte, sizes[0])
	if _, err := layers[0].ReadAt(base, 0); err != nil {
		t.Fatal(err)
	}
	layers[0] = qcow2.RawLayer(sparse{bytes.NewReader(base)}, sizes[0])
	same(t, qcow2.Stack(layers...), want)
}

// sparse knows its holes of 64 KiB.
type sparse struct{ *bytes.Reader }

func (s sparse) NextData(off int64) (int64, int64, error) {
	const step = 64 << 10
	b := make([]byte, step)
	for at := off / step * step; at < s.Size(); at += step {
		n, _ := s.ReadAt(b, at)
		if !zeros(b[:n]) {
			return max(at, off), at + int64(n), nil
		}
	}
	return s.Size(), s.Size(), nil
}
