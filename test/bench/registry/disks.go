package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/blob"
)

// What the disks are like.
const (
	size       = 4 << 30
	block      = 4096
	grain      = 16   // blocks of one matter in a row
	dataShare  = 0.53 // of the base that holds data
	changes    = 0.03 // of the data that a next tag rewrites
	newBytes   = 200_000_000
	extent     = 512 << 10 // median length of a range of data
	cluster    = 64 << 10  // median length of a range that is rewritten in one piece
	spread     = 1.5       // sigma of both, which are log-normal
	writeChunk = 1 << 20
)

// blockContent is the content of a block of a disk.
type blockContent byte

const (
	hole blockContent = iota
	original
	rewritten
	added
)

// disk is a created file and its properties.
type disk struct {
	path    string
	blocks  []blockContent
	data    int64 // bytes outside holes
	changed int64 // bytes that differ from the base
	sum     [sha256.Size]byte
}

// disks are the base and its two next tags.
type disks struct{ base, scattered, clustered disk }

// makeDisks writes the disks; equal sizes give equal bytes.
func makeDisks(ctx context.Context, dir string) (d disks, err error) {
	d.base = disk{path: filepath.Join(dir, "base.img"), blocks: baseBlocks()}
	d.scattered = d.base.next(filepath.Join(dir, "scattered.img"), block)
	d.clustered = d.base.next(filepath.Join(dir, "clustered.img"), cluster)
	for _, one := range []*disk{&d.base, &d.scattered, &d.clustered} {
		if err := one.write(ctx); err != nil {
			return d, fmt.Errorf("make %s: %w", filepath.Base(one.path), err)
		}
	}
	return d, nil
}

// dice returns the same numbers in every run.
func dice(seed, more uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, more)) } //nolint:gosec // they are to be known

// baseBlocks lays out a file system: ranges of data between holes.
func baseBlocks() []blockContent {
	blocks := make([]blockContent, size/block)
	rnd := dice(1, size)
	for at := 0; at < len(blocks); {
		n := length(rnd, extent)
		for i := at; i < min(at+n, len(blocks)); i++ {
			blocks[i] = original
		}
		at += n + int(float64(length(rnd, extent))*(1-dataShare)/dataShare)
	}
	return blocks
}

// length draws a number of blocks around a median of bytes.
func length(rnd *rand.Rand, median float64) int {
	return max(1, int(median*math.Exp(spread*rnd.NormFloat64())/block))
}

// next makes the tag that comes after: it rewrites data in pieces around a median of
// bytes, one block each when that is a block, and puts new files into holes.
func (d *disk) next(path string, median float64) disk {
	out := disk{path: path, blocks: make([]blockContent, len(d.blocks))}
	rnd := dice(2, uint64(median))
	used := 0
	for i, m := range d.blocks {
		out.blocks[i] = m
		if m != hole {
			used++
		}
	}
	out.fill(rnd, int(float64(used)*changes), original, rewritten, median)
	out.fill(rnd, newBytes/block, hole, added, extent)
	return out
}

// fill turns so many blocks of one matter into another, in ranges around a median.
func (d *disk) fill(rnd *rand.Rand, left int, from, to blockContent, median float64) {
	for left > 0 {
		at, n := rnd.IntN(len(d.blocks)), 1
		if median > block {
			n = length(rnd, median)
		}
		for i := at; i < min(at+n, len(d.blocks)) && left > 0; i++ {
			if d.blocks[i] == from {
				d.blocks[i] = to
				left--
			}
		}
	}
	d.count()
}

func (d *disk) count() {
	d.data, d.changed = 0, 0
	for _, m := range d.blocks {
		if m != hole {
			d.data += block
		}
		if m > original {
			d.changed += block
		}
	}
}

// write makes the file and its sum.
func (d *disk) write(ctx context.Context) (err error) {
	d.count()
	f, err := os.Create(d.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(size); err != nil {
		return err
	}
	text := newText()
	buf := make([]byte, 0, writeChunk)
	for at := 0; at < len(d.blocks); {
		if d.blocks[at] == hole {
			at++
			continue
		}
		off := int64(at) * block
		for buf = buf[:0]; at < len(d.blocks) && d.blocks[at] != hole && len(buf) < writeChunk; at++ {
			buf = d.appendBlock(buf, at, text)
		}
		if _, err := f.WriteAt(buf, off); err != nil {
			return err
		}
		blob.StartWriteback(f, off, int64(len(buf)))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	d.sum, err = sumOf(f)
	return err
}

// appendBlock returns what a block holds: bytes of chance in one half of the grains, and
// text in the other. Blocks that are rewritten one by one are grains of their own.
func (d *disk) appendBlock(buf []byte, at int, text []byte) []byte {
	m := d.blocks[at]
	of := uint64(at / grain)
	if m == rewritten {
		of = uint64(at)
	}
	if dice(of, uint64(m)).Uint64()&1 == 0 {
		var seed [32]byte
		binary.LittleEndian.PutUint64(seed[:], uint64(at))
		seed[8] = byte(m)
		buf = append(buf, make([]byte, block)...)
		_, _ = rand.NewChaCha8(seed).Read(buf[len(buf)-block:])
		return buf
	}
	from := dice(uint64(at), uint64(m)).IntN(len(text) - block)
	return append(buf, text[from:from+block]...)
}

// newText makes a text that compresses as logs do.
func newText() []byte {
	const length = 4 << 20
	rnd := dice(3, length)
	messages := make([]string, 40)
	for i := range messages {
		var words []byte
		for range 5 + rnd.IntN(8) {
			for range 2 + rnd.IntN(9) {
				words = append(words, byte('a'+rnd.IntN(26)))
			}
			words = append(words, ' ')
		}
		messages[i] = string(words)
	}
	var text []byte
	for len(text) < length {
		text = fmt.Appendf(text, "%d host-%d %s%d\n", 1_700_000_000+len(text)/80, rnd.IntN(8),
			messages[rnd.IntN(len(messages))], rnd.IntN(10_000))
	}
	return text[:length]
}

// sumOf returns the sha256 of all bytes.
func sumOf(r io.ReaderAt) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if _, err := io.CopyBuffer(h, io.NewSectionReader(r, 0, math.MaxInt64), make([]byte, writeChunk)); err != nil {
		return sum, fmt.Errorf("read it for its sum: %w", err)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
