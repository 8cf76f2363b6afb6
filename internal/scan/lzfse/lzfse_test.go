package lzfse_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/lzfse"
	"github.com/buildyard/buildyard/internal/scan/lzfse/lzfsetest"
)

// formats are the decoded formats, and the compressors of the tests.
var formats = []struct {
	name   string
	encode func([]byte) []byte
	decode func(dst, src []byte) (int, error)
}{
	{"lzvn", lzfsetest.LZVN, lzfse.DecodeLZVN},
	{"bvx2", func(b []byte) []byte { return lzfsetest.LZFSE(b, lzfsetest.Packed) }, lzfse.Decode},
	{"bvx1", func(b []byte) []byte { return lzfsetest.LZFSE(b, lzfsetest.Full) }, lzfse.Decode},
	{"bvxn", func(b []byte) []byte { return lzfsetest.LZFSE(b, lzfsetest.Nested) }, lzfse.Decode},
	{"bvx-", func(b []byte) []byte { return lzfsetest.LZFSE(b, lzfsetest.Stored) }, lzfse.Decode},
	{"zbm", lzfsetest.LZBitmap, lzfse.DecodeBitmap},
}

// samples are bytes of many kinds: random, of few values, text, runs, and far repeats.
func samples() [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	var out [][]byte
	for _, size := range []int{0, 1, 2, 3, 4, 7, 8, 9, 100, 4000, 65536, 100000} {
		noise, few, run := make([]byte, size), make([]byte, size), make([]byte, size)
		for i := range noise {
			noise[i], few[i] = byte(r.Uint32()), byte(r.Uint32()%4)
			run[i] = byte(i / 1000)
		}
		var text bytes.Buffer
		for i := 0; text.Len() < size; i++ {
			fmt.Fprintf(&text, "line %d of %x\n", i, r.Uint32()%1000)
		}
		far := bytes.Repeat(noise[:min(size, 5000)], size/max(1, min(size, 5000)))
		out = append(out, noise, few, run, text.Bytes()[:size], far)
	}
	return out
}

func TestFormats(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			for i, want := range samples() {
				packed := f.encode(want)
				got := make([]byte, len(want))
				n, err := f.decode(got, packed)
				if err != nil || n != len(want) || !bytes.Equal(got, want) {
					t.Fatalf("sample %d of %d bytes: %d bytes, %v", i, len(want), n, err)
				}
				if _, err := f.decode(make([]byte, len(want)+10), packed); err != nil {
					t.Errorf("sample %d: more room than needed: %v", i, err)
				}
				if len(want) == 0 {
					continue
				}
				if _, err := f.decode(make([]byte, len(want)-1), packed); !errors.Is(err, lzfse.ErrDamaged) {
					t.Errorf("sample %d: less room than needed: %v", i, err)
				}
			}
		})
	}
}

// TestDamage changes and truncates compressed data: decoding must end, within its slices.
func TestDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	want := bytes.Repeat([]byte("some text that repeats, and some that does not "), 40)
	for _, f := range formats {
		whole := f.encode(want)
		for i := range whole {
			if _, err := f.decode(make([]byte, len(want)), whole[:i]); err == nil && i < len(whole)-8 {
				t.Errorf("%s is decoded from %d of %d bytes", f.name, i, len(whole))
			}
		}
		for range 1000 {
			b := bytes.Clone(whole)
			for range 1 + r.IntN(3) {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
			if n, err := f.decode(make([]byte, len(want)), b); err != nil && !errors.Is(err, lzfse.ErrDamaged) ||
				n > len(want) {
				t.Fatalf("%s: %d bytes, %v", f.name, n, err)
			}
		}
	}
}

func fuzz(f *testing.F, decode func(dst, src []byte) (int, error), seeds ...[]byte) {
	for _, s := range seeds {
		f.Add(s, len(s)*2)
	}
	f.Fuzz(func(t *testing.T, src []byte, size int) {
		if size < 0 || size > 1<<20 {
			return
		}
		dst := make([]byte, size, size+16)
		n, err := decode(dst, src)
		if n < 0 || n > size || err != nil && !errors.Is(err, lzfse.ErrDamaged) {
			t.Fatalf("%d of %d bytes, %v", n, size, err)
		}
		if !bytes.Equal(dst[size:size+16], make([]byte, 16)) {
			t.Fatal("it wrote behind its slice")
		}
	})
}

var seed = []byte("a seed, a seed, a seed that is long enough to be a seed: a seed")

func FuzzLZVN(f *testing.F) {
	fuzz(f, lzfse.DecodeLZVN, lzfsetest.LZVN(seed), []byte{0xf0, 0xff}, []byte{6})
	f.Add([]byte{}, 0)
}

func FuzzLZFSE(f *testing.F) {
	f.Add([]byte("bvx$"), 0)
	fuzz(f, lzfse.Decode, lzfsetest.LZFSE(seed, lzfsetest.Packed), lzfsetest.LZFSE(seed, lzfsetest.Full),
		lzfsetest.LZFSE(seed, lzfsetest.Nested), lzfsetest.LZFSE(seed, lzfsetest.Stored))
}

func FuzzBitmap(f *testing.F) {
	f.Add([]byte("ZBM\x09"), 8)
	fuzz(f, lzfse.DecodeBitmap, lzfsetest.LZBitmap(seed), lzfsetest.LZBitmap(bytes.Repeat(seed, 30)))
}

func BenchmarkDecode(b *testing.B) {
	text := samples()[len(samples())-2]
	for _, f := range formats {
		packed := f.encode(text)
		dst := make([]byte, len(text))
		b.Run(f.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.decode(dst, packed); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
