package pairsum

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"testing"
)

// same compares both sums with those of crypto/sha256.
func same(t *testing.T, p, q []byte) {
	t.Helper()
	a, b := Sum256(p, q)
	if a != sha256.Sum256(p) || b != sha256.Sum256(q) {
		t.Fatalf("wrong sums of %d and %d bytes", len(p), len(q))
	}
}

func TestSum256(t *testing.T) {
	if !supported {
		t.Log("this processor computes one sum at a time")
	}
	data := make([]byte, 2*maxBytesPerCall+sha256.BlockSize+5)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	lengths := []int{
		0, 1, 55, 56, 63, 64, 65, 127, 128, 129, 4096, maxBytesPerCall, maxBytesPerCall + 64, len(data) - 3,
	}
	for _, n := range lengths {
		for _, m := range lengths {
			same(t, data[:n], data[3:3+m])
		}
	}
	same(t, bytes.Repeat([]byte{0xff}, 1<<20), make([]byte, 1<<20))
}

func FuzzSum256(f *testing.F) {
	f.Add([]byte("abc"), []byte{})
	f.Add(make([]byte, 200), bytes.Repeat([]byte("0123456789abcdef"), 9))
	f.Fuzz(func(t *testing.T, p, q []byte) { same(t, p, q) })
}

// BenchmarkSum256 compares two frames with the same work of crypto/sha256.
func BenchmarkSum256(b *testing.B) {
	p, q := make([]byte, 1<<20), make([]byte, 1<<20)
	b.Run("pair", func(b *testing.B) {
		b.SetBytes(2 << 20)
		for b.Loop() {
			Sum256(p, q)
		}
	})
	b.Run("single", func(b *testing.B) {
		b.SetBytes(2 << 20)
		for b.Loop() {
			sha256.Sum256(p)
			sha256.Sum256(q)
		}
	})
}
