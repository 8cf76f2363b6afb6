package chunked_test

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

// halves is a disk whose even chunks of ten bytes are data, and whose odd ones are zeros.
type halves struct{ size int64 }

func (h halves) Size() int64 { return h.size }

func (h halves) Range(off int64) (qcow2.Range, error) {
	r := qcow2.Range{Off: off, Len: min(h.size, (off/10+1)*10) - off, Kind: qcow2.Zero}
	if off/10%2 == 0 {
		r.Kind = qcow2.Data
	}
	return r, nil
}

func (h halves) ReadRange(p []byte, off int64) error {
	if off >= 40 {
		return chunked.Damaged("at %d", off)
	}
	for k := range p {
		p[k] = byte(off) + byte(k)
	}
	return nil
}

func TestDisk(t *testing.T) {
	d := chunked.Disk{Source: halves{35}}
	want := make([]byte, 35)
	for k := range want {
		if k/10%2 == 0 {
			want[k] = byte(k)
		}
	}
	for off := range want {
		for n := range len(want) + 5 {
			p := bytes.Repeat([]byte{0xff}, n)
			got, err := d.ReadAt(p, int64(off))
			if isAtEnd := off+n > len(want); errors.Is(err, io.EOF) != isAtEnd || !isAtEnd && err != nil {
				t.Fatalf("%d bytes at %d: %d, %v", n, off, got, err)
			}
			if got != min(n, len(want)-off) || !bytes.Equal(p[:got], want[off:off+got]) {
				t.Fatalf("%d bytes at %d: %d, %v", n, off, got, p)
			}
		}
	}
	var ranges []string
	for off := int64(3); ; {
		start, end, err := qcow2.NextData(d, off)
		if err != nil {
			t.Fatal(err)
		}
		if start == end {
			break
		}
		ranges = append(ranges, fmt.Sprintf("%d-%d", start, end))
		off = end
	}
	if got := fmt.Sprint(ranges); got != "[3-10 20-30]" {
		t.Errorf("data is at %s", got)
	}
	if _, err := d.ReadAt(make([]byte, 1), -1); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("at a negative offset: %v", err)
	}
	if n, err := (chunked.Disk{Source: halves{100}}).ReadAt(make([]byte, 60), 0); n != 40 ||
		!errors.Is(err, chunked.ErrDamaged) {
		t.Errorf("over damage: %d, %v", n, err)
	}
	if r, ok, err := d.NextRange(35); ok || err != nil {
		t.Errorf("a range behind the end: %v, %v", r, err)
	}
}

// A chunk that many callers want is decoded once, and the oldest ones are removed.
func TestCache(t *testing.T) {
	c := chunked.NewCache[int](100)
	var decoded, running atomic.Int64
	release := make(chan struct{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			running.Add(1)
			b, err := c.Get(1, func() ([]byte, error) {
				decoded.Add(1)
				<-release
				return make([]byte, 60), nil
			})
			if len(b) != 60 || err != nil {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		})
	}
	for running.Load() < 20 || decoded.Load() == 0 {
		if _, err := c.Get(2, func() ([]byte, error) { return []byte("other"), nil }); err != nil {
			t.Error(err)
		}
	}
	close(release)
	wg.Wait()
	if n := decoded.Load(); n != 1 {
		t.Errorf("decoded %d times", n)
	}

	calls := func(key, size int) int {
		n := 0
		_, _ = c.Get(key, func() ([]byte, error) { n++; return make([]byte, size), nil })
		return n
	}
	for k, want := range []struct{ key, size, calls int }{
		{1, 60, 0},   // cached
		{3, 39, 1},   // fits
		{1, 60, 0},   // the newest
		{4, 20, 1},   // removes 2 and 3
		{1, 60, 0},   // still there
		{3, 20, 1},   // was removed
		{5, 1000, 1}, // is larger than the limit: the only one
		{5, 1000, 0},
		{1, 60, 1},
		{5, 1000, 1},
	} {
		if got := calls(want.key, want.size); got != want.calls {
			t.Errorf("step %d: decoded %d times", k, got)
		}
	}
}

// An error is not cached, and a panic does not block later callers.
func TestCacheOfErrors(t *testing.T) {
	c := chunked.NewCache[string](100)
	for range 2 {
		if _, err := c.Get("a", func() ([]byte, error) { return nil, chunked.Damaged("it") }); !errors.Is(err,
			chunked.ErrDamaged) {
			t.Error(err)
		}
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = c.Get("a", func() ([]byte, error) { panic("decoder") })
	}()
	if b, err := c.Get("a", func() ([]byte, error) { return []byte("x"), nil }); string(b) != "x" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

func TestInflate(t *testing.T) {
	want := bytes.Repeat([]byte("some text "), 100)
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := packed.Bytes()
	for _, more := range []int{0, 1, 1000} {
		out := make([]byte, len(want)+more)
		if n, err := chunked.Inflate(out, append(bytes.Clone(whole), "behind it"...)); n != len(want) || err != nil ||
			!bytes.Equal(out[:n], want) {
			t.Errorf("%d bytes more: %d, %v", more, n, err)
		}
	}
	if n, err := chunked.Inflate(make([]byte, len(want)-1), whole); !errors.Is(err, chunked.ErrTooLong) {
		t.Errorf("too long: %d, %v", n, err)
	}
	for n := range whole {
		if got, err := chunked.Inflate(make([]byte, len(want)), whole[:n]); err == nil {
			t.Errorf("cut off at %d of %d: %d bytes", n, len(whole), got)
		}
	}
	bad := bytes.Clone(whole)
	bad[len(bad)-1] ^= 1 // of the checksum
	if n, err := chunked.Inflate(make([]byte, len(want)), bad); err == nil {
		t.Errorf("a wrong checksum: %d bytes", n)
	}
}
