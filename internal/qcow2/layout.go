package qcow2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sort"
)

// Geometry of the written overlay, the same as that of the overlays that QEMU is given.
const (
	layoutBits = 17
	layoutSize = 1 << layoutBits // bytes of a cluster
	// Block is the unit of writing, in bytes: a range begins and ends at one.
	Block = layoutSize / blocks

	tableEntries = layoutSize / extendedBytes // of an L2 table
	countsOf     = layoutSize / 2             // 16-bit counts in a refcount block
)

// Builder collects the ranges of an overlay.
type Builder struct {
	size     int64
	clusters []slot
	sorted   bool
}

// slot is a cluster of the disk with an entry in the overlay.
type slot struct {
	cluster    int64
	data, zero uint32 // a bit for each block
	place      int64  // in the file; 0 = it has no data
}

// NewBuilder creates a builder of an overlay over a disk of size bytes.
func NewBuilder(size int64) *Builder { return &Builder{size: size, sorted: true} }

// Add adds a range of the disk, which consists of whole blocks except at the end of the disk.
// Ranges may come in any order, fastest in that of the disk. An Absent range is ignored.
func (b *Builder) Add(r Range) error {
	end := r.End()
	switch {
	case r.Off < 0 || end < r.Off || end > sectors(b.size):
		return fmt.Errorf("the range %d+%d is not on a disk of %d bytes", r.Off, r.Len, b.size)
	case r.Off%Block != 0 || (end%Block != 0 && end < b.size):
		return fmt.Errorf("the range %d+%d is not made of blocks", r.Off, r.Len)
	case r.Kind == Absent:
		return nil
	}
	for off := r.Off; off < end; {
		n := min(end, (off/layoutSize+1)*layoutSize) - off
		s := b.slot(off / layoutSize)
		if r.Kind == Data {
			s.data |= blockBits(off%layoutSize, n)
		} else {
			s.zero |= blockBits(off%layoutSize, n)
		}
		off += n
	}
	return nil
}

// slot returns the last slot if it is for the cluster, else a new one.
func (b *Builder) slot(cluster int64) *slot {
	last := len(b.clusters) - 1
	if last >= 0 {
		switch at := b.clusters[last].cluster; {
		case at == cluster:
			return &b.clusters[last]
		case at > cluster:
			b.sorted = false
		}
	}
	b.clusters = append(b.clusters, slot{cluster: cluster})
	return &b.clusters[last+1]
}

// blockBits returns a bit for each block that a range of a cluster touches.
func blockBits(from, n int64) uint32 {
	first, last := from/Block, (from+n-1)/Block
	return uint32((uint64(1)<<(last+1) - 1) &^ (uint64(1)<<first - 1))
}

// sectors rounds a size in bytes up to whole sectors, QEMU's unit.
func sectors(size int64) int64 { return (size + 511) &^ 511 }

// Layout has the offsets of all parts of an overlay. It is the same whenever the same ranges were
// added, so data that was written before an interruption can stay. It is immutable and safe for
// concurrent use.
type Layout struct {
	size     int64 // of the disk, in whole sectors
	clusters []slot
	l1       []int64 // offsets of the L2 tables; 0 = none
	counts   int64   // clusters of refcount blocks
	total    int64   // clusters of the file
}

// The refcount table has one cluster, after those of the L1 table; its blocks follow.
func (l *Layout) l1Clusters() int64 {
	return (int64(len(l.l1))*entryBytes + layoutSize - 1) / layoutSize
}
func (l *Layout) countTable() int64  { return 1 + l.l1Clusters() }
func (l *Layout) countBlocks() int64 { return l.countTable() + 1 }

// Layout assigns all offsets. The builder must not be used afterwards.
func (b *Builder) Layout() (*Layout, error) {
	if b.size <= 0 || b.size > MaxDisk {
		return nil, fmt.Errorf("an overlay over a disk of %d bytes: want 1-%d", b.size, int64(MaxDisk))
	}
	if err := b.merge(); err != nil {
		return nil, err
	}
	const span = tableEntries * layoutSize
	l := &Layout{size: sectors(b.size), clusters: b.clusters, l1: make([]int64, (b.size+span-1)/span)}
	var tables, data int64
	for k, s := range l.clusters {
		if k == 0 || s.cluster/tableEntries != l.clusters[k-1].cluster/tableEntries {
			tables++
		}
		if s.data != 0 {
			data++
		}
	}
	fixed := l.countBlocks() + tables + data
	for l.counts = 1; l.counts*countsOf < fixed+l.counts; l.counts++ {
	}
	if l.counts > layoutSize/entryBytes {
		return nil, errors.New("the overlay is too large")
	}
	l.total = fixed + l.counts
	l.place(tables)
	return l, nil
}

// merge sorts the slots and merges those of the same cluster.
func (b *Builder) merge() error {
	if !b.sorted {
		slices.SortStableFunc(b.clusters, func(x, y slot) int { return int(x.cluster - y.cluster) })
	}
	out := b.clusters[:0]
	for _, s := range b.clusters {
		if n := len(out); n > 0 && out[n-1].cluster == s.cluster {
			out[n-1].data |= s.data
			out[n-1].zero |= s.zero
			s = out[n-1]
		} else {
			out = append(out, s)
		}
		if s.data&s.zero != 0 {
			return fmt.Errorf("a block near %d of the disk is both data and zero", s.cluster*layoutSize)
		}
	}
	b.clusters = out
	return nil
}

// place assigns an offset to every table and data cluster, in the order of the disk.
func (l *Layout) place(tables int64) {
	table := (l.countBlocks() + l.counts) * layoutSize
	data := table + tables*layoutSize
	for k := range l.clusters {
		s := &l.clusters[k]
		if r := s.cluster / tableEntries; l.l1[r] == 0 {
			l.l1[r] = table
			table += layoutSize
		}
		if s.data != 0 {
			s.place = data
			data += layoutSize
		}
	}
}

// Bytes returns the size of the data in the overlay, in whole blocks.
func (l *Layout) Bytes() int64 { return l.sum(func(s slot) uint32 { return s.data }) }

// Zeroed returns how many bytes of the disk the overlay marks as zero, in whole blocks.
func (l *Layout) Zeroed() int64 { return l.sum(func(s slot) uint32 { return s.zero }) }

func (l *Layout) sum(which func(slot) uint32) int64 {
	sum := int64(0)
	for _, s := range l.clusters {
		sum += int64(bits.OnesCount32(which(s))) * Block
	}
	return sum
}

// FileSize returns the length of the overlay's file. Unused parts of it stay a hole.
func (l *Layout) FileSize() int64 { return l.total * layoutSize }

// Place returns the file offset of the disk's bytes at off, and how many of them are contiguous: 0
// when the overlay has no data there.
func (l *Layout) Place(off int64) (at, n int64) {
	k := l.search(off / layoutSize)
	if off < 0 || k == len(l.clusters) {
		return 0, 0
	}
	s := l.clusters[k]
	block := off % layoutSize / Block
	run := int64(bits.TrailingZeros32(^(s.data >> block))) // shifted: zeros come in above
	if s.cluster != off/layoutSize || run == 0 {
		return 0, 0
	}
	return s.place + off%layoutSize, (block+run)*Block - off%layoutSize
}

// search returns the first slot at or after a cluster.
func (l *Layout) search(cluster int64) int {
	return sort.Search(len(l.clusters), func(k int) bool { return l.clusters[k].cluster >= cluster })
}

// Fill copies all data of the overlay from its source disk.
func (l *Layout) Fill(ctx context.Context, w io.WriterAt, disk io.ReaderAt) error {
	buf := make([]byte, layoutSize)
	for _, s := range l.clusters {
		for left := s.data; left != 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			first := bits.TrailingZeros32(left)
			run := bits.TrailingZeros32(^(left >> first))
			left &^= blockBits(int64(first)*Block, int64(run)*Block)
			within := int64(first) * Block
			p := buf[:int64(run)*Block]
			n, err := disk.ReadAt(p, s.cluster*layoutSize+within)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			clear(p[n:]) // after the end of the disk
			if _, err := w.WriteAt(p, s.place+within); err != nil {
				return err
			}
		}
	}
	return nil
}
