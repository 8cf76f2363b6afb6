package blob

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

const benchSize = 256 << 20

// benchImage is half zero and, of the rest, half random and half text.
func benchImage() []byte { return image(rand.New(rand.NewPCG(11, 12)), benchSize) }

func discard(Frame, int64, []byte) error { return nil }

func BenchmarkEncode(b *testing.B) {
	src := memory{bytes.NewReader(benchImage())}
	b.SetBytes(benchSize)
	for b.Loop() {
		if _, err := Encode(context.Background(), src, EncodeOptions{Kind: KindDisk, Size: benchSize},
			discard); err != nil {
			b.Fatal(err)
		}
	}
}

// both runs a benchmark of files that are not in the page cache, read through it and past it.
func both(b *testing.B, files []FileSource, run func(b *testing.B, files []FileSource)) {
	past := make([]FileSource, len(files))
	for i, f := range files {
		var release func()
		past[i], release = f.Uncached()
		b.Cleanup(release)
	}
	for _, c := range []struct {
		name  string
		files []FileSource
	}{{"cache", files}, {"direct", past}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(benchSize)
			for b.Loop() {
				b.StopTimer()
				for _, f := range c.files {
					dropCache(b, f.File)
				}
				b.StartTimer()
				run(b, c.files)
			}
		})
	}
}

func BenchmarkEncodeCold(b *testing.B) {
	both(b, []FileSource{coldFile(b, benchImage())}, func(b *testing.B, files []FileSource) {
		if _, err := Encode(context.Background(), files[0], EncodeOptions{Kind: KindDisk, Size: benchSize},
			discard); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkCompareCold compares two files that differ in 3 % of their blocks.
func BenchmarkCompareCold(b *testing.B) {
	old := benchImage()
	both(b, []FileSource{coldFile(b, scatter(old, 3)), coldFile(b, old)}, func(b *testing.B, files []FileSource) {
		benchCompare(b, files[0], files[1])
	})
}

func BenchmarkCompare(b *testing.B) {
	old := benchImage()
	parent, disk := memory{bytes.NewReader(old)}, memory{bytes.NewReader(scatter(old, 3))}
	b.SetBytes(benchSize)
	for b.Loop() {
		benchCompare(b, disk, parent)
	}
}

func benchCompare(b *testing.B, disk, parent Source) {
	o := EncodeOptions{Kind: KindDisk, Size: benchSize, Parent: Digest{1}}
	x, err := EncodeChanges(context.Background(), Compare(disk, parent, benchSize), o, discard)
	if err != nil || x.DecodedBytes() == 0 {
		b.Fatal(err)
	}
}

// scatter changes a share of the blocks, in percent, one here and one there.
func scatter(old []byte, percent int) []byte {
	disk := bytes.Clone(old)
	rnd := rand.New(rand.NewPCG(13, 14))
	for off := 0; off < len(disk); off += BlockSize {
		if rnd.IntN(100) < percent {
			disk[off] ^= 0xff
		}
	}
	return disk
}

func coldFile(b *testing.B, data []byte) FileSource {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "disk"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	for off := 0; off < len(data); off += MaxFrameSize {
		if part := data[off:min(off+MaxFrameSize, len(data))]; !isBlank(part) {
			if _, err := f.WriteAt(part, int64(off)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := f.Truncate(int64(len(data))); err != nil {
		b.Fatal(err)
	}
	return FileSource{File: f, Size: int64(len(data))}
}

// scattered makes the index of a layer that changes one block here and one there, in a disk of 1,000,000 blocks.
func scattered(b testing.TB, runs int, o EncodeOptions, seed uint64) *Index {
	b.Helper()
	o.Kind, o.Size = KindDisk, 1_000_000*BlockSize
	rnd := rand.New(rand.NewPCG(seed, 1))
	at := map[int64]bool{}
	for len(at) < runs {
		at[rnd.Int64N(1_000_000)] = true
	}
	build := NewBuilder(o)
	var frame []Run
	flush := func() {
		if len(frame) > 0 {
			build.Add(Frame{StoredSize: 1000, Codec: CodecZstd}, frame)
		}
		frame = frame[:0]
	}
	blocks := make([]int64, 0, runs)
	for block := range at {
		blocks = append(blocks, block)
	}
	slices.Sort(blocks)
	n := 0
	for _, block := range blocks {
		if n == MaxFrameSize/BlockSize {
			flush()
			n = 0
		}
		n++
		if k := len(frame) - 1; k >= 0 && frame[k].Off+frame[k].Len == block*BlockSize {
			frame[k].Len += BlockSize
			continue
		}
		frame = append(frame, Run{block * BlockSize, BlockSize})
	}
	flush()
	x, err := build.Index()
	if err != nil {
		b.Fatal(err)
	}
	return x
}

// BenchmarkPlan plans for a chain of 20 layers of 70,000 runs each.
func BenchmarkPlan(b *testing.B) {
	chain := []*Index{scattered(b, 1_000_000, EncodeOptions{}, 1)}
	for i := range 19 {
		chain = append(chain, scattered(b, 70_000, EncodeOptions{Parent: chain[i].ChainID()}, uint64(i)+2))
	}
	for _, held := range []int{0, 10, 19} {
		b.Run(strconv.Itoa(held), func(b *testing.B) {
			for b.Loop() {
				p, err := NewFetchPlan(chain, held)
				if err != nil || p.FrameCount() == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseIndex(b *testing.B) {
	x := scattered(b, 70_000, EncodeOptions{}, 1)
	b.SetBytes(int64(len(x.Encoded())))
	for b.Loop() {
		if _, err := ParseIndex(x.Encoded()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChainRead reads a chain of 20 layers, each with 1 % of the blocks, from its begin to its end.
func BenchmarkChainRead(b *testing.B) {
	disk := image(rand.New(rand.NewPCG(15, 16)), benchSize/4)
	layers := []*Layer{whole(b, disk, EncodeOptions{})}
	for range 19 {
		next := scatter(disk, 1)
		src := Compare(memory{bytes.NewReader(next)}, memory{bytes.NewReader(disk)}, int64(len(disk)))
		layers = append(layers, changed(b, src, len(next), layers[len(layers)-1].Index().ChainID()))
		disk = next
	}
	for _, n := range []int{16 << 10, MaxFrameSize} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			buf := make([]byte, n)
			b.SetBytes(int64(len(disk)))
			for b.Loop() {
				c, err := OpenChain(layers...)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard},
					struct{ io.Reader }{io.NewSectionReader(c, 0, c.Size())}, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
