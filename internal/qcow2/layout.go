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
	overlayClusterBits  = 17
	overlayClusterBytes = 1 << overlayClusterBits // bytes of a cluster
	// SubclusterBytes is the unit of writing, in bytes: a range begins and ends at one.
	SubclusterBytes = overlayClusterBytes / subclusters

	l2TableEntries    = overlayClusterBytes / extendedL2EntryBytes // of an L2 table
	refcountsPerBlock = overlayClusterBytes / 2                    // 16-bit counts in a refcount block
)

// Builder collects the ranges of an overlay.
type Builder struct {
	size     int64
	clusters []overlayCluster
	sorted   bool
}

// overlayCluster is a cluster of the disk with an entry in the overlay.
type overlayCluster struct {
	index              int64
	dataBits, zeroBits uint32 // a bit for each block
	fileOffset         int64  // in the file; 0 = it has no data
}

// NewBuilder creates a builder of an overlay over a disk of size bytes.
func NewBuilder(size int64) *Builder { return &Builder{size: size, sorted: true} }

// Add adds a range of the disk, which consists of whole blocks except at the end of the disk.
// Ranges may come in any order, fastest in that of the disk. An Absent range is ignored.
func (b *Builder) Add(r Range) error {
	end := r.End()
	switch {
	case r.Off < 0 || end < r.Off || end > roundToSectors(b.size):
		return fmt.Errorf("the range %d+%d is outside of the disk of %d bytes", r.Off, r.Len, b.size)
	case r.Off%SubclusterBytes != 0 || (end%SubclusterBytes != 0 && end < b.size):
		return fmt.Errorf("the range %d+%d is not aligned to blocks", r.Off, r.Len)
	case r.Kind == Absent:
		return nil
	}
	for off := r.Off; off < end; {
		n := min(end, (off/overlayClusterBytes+1)*overlayClusterBytes) - off
		s := b.clusterFor(off / overlayClusterBytes)
		if r.Kind == Data {
			s.dataBits |= subclusterBits(off%overlayClusterBytes, n)
		} else {
			s.zeroBits |= subclusterBits(off%overlayClusterBytes, n)
		}
		off += n
	}
	return nil
}

// clusterFor returns the last slot if it is for the cluster, else a new one.
func (b *Builder) clusterFor(cluster int64) *overlayCluster {
	last := len(b.clusters) - 1
	if last >= 0 {
		switch at := b.clusters[last].index; {
		case at == cluster:
			return &b.clusters[last]
		case at > cluster:
			b.sorted = false
		}
	}
	b.clusters = append(b.clusters, overlayCluster{index: cluster})
	return &b.clusters[last+1]
}

// subclusterBits returns a bit for each block that a range of a cluster touches.
func subclusterBits(from, n int64) uint32 {
	first, last := from/SubclusterBytes, (from+n-1)/SubclusterBytes
	return uint32((uint64(1)<<(last+1) - 1) &^ (uint64(1)<<first - 1))
}

// roundToSectors rounds a size in bytes up to whole sectors, QEMU's unit.
func roundToSectors(size int64) int64 { return (size + 511) &^ 511 }

// Layout has the offsets of all parts of an overlay. It is the same whenever the same ranges were
// added, so data that was written before an interruption can stay. It is immutable and safe for
// concurrent use.
type Layout struct {
	size                  int64 // of the disk, in whole sectors
	clusters              []overlayCluster
	l1                    []int64 // offsets of the L2 tables; 0 = none
	refcountBlockClusters int64   // clusters of refcount blocks
	totalClusters         int64   // clusters of the file
}

// The refcount table has one cluster, after those of the L1 table; its blocks follow.
func (l *Layout) l1Clusters() int64 {
	return (int64(len(l.l1))*l2EntryBytes + overlayClusterBytes - 1) / overlayClusterBytes
}
func (l *Layout) refcountTableCluster() int64 { return 1 + l.l1Clusters() }
func (l *Layout) firstRefcountBlock() int64   { return l.refcountTableCluster() + 1 }

// Layout assigns all offsets. The builder must not be used afterwards.
func (b *Builder) Layout() (*Layout, error) {
	if b.size <= 0 || b.size > MaxDiskBytes {
		return nil, fmt.Errorf("the disk of the overlay has %d bytes: want 1-%d", b.size, int64(MaxDiskBytes))
	}
	if err := b.mergeClusters(); err != nil {
		return nil, err
	}
	const span = l2TableEntries * overlayClusterBytes
	l := &Layout{size: roundToSectors(b.size), clusters: b.clusters, l1: make([]int64, (b.size+span-1)/span)}
	var tables, data int64
	for k, s := range l.clusters {
		if k == 0 || s.index/l2TableEntries != l.clusters[k-1].index/l2TableEntries {
			tables++
		}
		if s.dataBits != 0 {
			data++
		}
	}
	fixed := l.firstRefcountBlock() + tables + data
	for l.refcountBlockClusters = 1; l.refcountBlockClusters*refcountsPerBlock < fixed+
		l.refcountBlockClusters; l.refcountBlockClusters++ {
	}
	if l.refcountBlockClusters > overlayClusterBytes/l2EntryBytes {
		return nil, errors.New("the qcow2 overlay is too large")
	}
	l.totalClusters = fixed + l.refcountBlockClusters
	l.assignOffsets(tables)
	return l, nil
}

// mergeClusters sorts the slots and merges those of the same cluster.
func (b *Builder) mergeClusters() error {
	if !b.sorted {
		slices.SortStableFunc(b.clusters, func(x, y overlayCluster) int { return int(x.index - y.index) })
	}
	out := b.clusters[:0]
	for _, s := range b.clusters {
		if n := len(out); n > 0 && out[n-1].index == s.index {
			out[n-1].dataBits |= s.dataBits
			out[n-1].zeroBits |= s.zeroBits
			s = out[n-1]
		} else {
			out = append(out, s)
		}
		if s.dataBits&s.zeroBits != 0 {
			return fmt.Errorf("a block near offset %d of the disk is marked as both data and zero",
				s.index*overlayClusterBytes)
		}
	}
	b.clusters = out
	return nil
}

// assignOffsets assigns an offset to every table and data cluster, in the order of the disk.
func (l *Layout) assignOffsets(tables int64) {
	table := (l.firstRefcountBlock() + l.refcountBlockClusters) * overlayClusterBytes
	data := table + tables*overlayClusterBytes
	for k := range l.clusters {
		s := &l.clusters[k]
		if r := s.index / l2TableEntries; l.l1[r] == 0 {
			l.l1[r] = table
			table += overlayClusterBytes
		}
		if s.dataBits != 0 {
			s.fileOffset = data
			data += overlayClusterBytes
		}
	}
}

// DataBytes returns the size of the data in the overlay, in whole blocks.
func (l *Layout) DataBytes() int64 {
	return l.sumBits(func(s overlayCluster) uint32 { return s.dataBits })
}

// ZeroBytes returns how many bytes of the disk the overlay marks as zero, in whole blocks.
func (l *Layout) ZeroBytes() int64 {
	return l.sumBits(func(s overlayCluster) uint32 { return s.zeroBits })
}

func (l *Layout) sumBits(which func(overlayCluster) uint32) int64 {
	sum := int64(0)
	for _, s := range l.clusters {
		sum += int64(bits.OnesCount32(which(s))) * SubclusterBytes
	}
	return sum
}

// FileSize returns the length of the overlay's file. Unused parts of it stay a hole.
func (l *Layout) FileSize() int64 { return l.totalClusters * overlayClusterBytes }

// FileOffset returns the file offset of the disk's bytes at off, and how many of them are contiguous: 0
// when the overlay has no data there.
func (l *Layout) FileOffset(off int64) (at, n int64) {
	k := l.searchCluster(off / overlayClusterBytes)
	if off < 0 || k == len(l.clusters) {
		return 0, 0
	}
	s := l.clusters[k]
	block := off % overlayClusterBytes / SubclusterBytes
	run := int64(bits.TrailingZeros32(^(s.dataBits >> block))) // shifted: zeros come in above
	if s.index != off/overlayClusterBytes || run == 0 {
		return 0, 0
	}
	return s.fileOffset + off%overlayClusterBytes, (block+run)*SubclusterBytes - off%overlayClusterBytes
}

// searchCluster returns the first slot at or after a cluster.
func (l *Layout) searchCluster(cluster int64) int {
	return sort.Search(len(l.clusters), func(k int) bool { return l.clusters[k].index >= cluster })
}

// CopyData copies all data of the overlay from its source disk.
func (l *Layout) CopyData(ctx context.Context, w io.WriterAt, disk io.ReaderAt) error {
	buf := make([]byte, overlayClusterBytes)
	for _, s := range l.clusters {
		for left := s.dataBits; left != 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			first := bits.TrailingZeros32(left)
			run := bits.TrailingZeros32(^(left >> first))
			left &^= subclusterBits(int64(first)*SubclusterBytes, int64(run)*SubclusterBytes)
			within := int64(first) * SubclusterBytes
			p := buf[:int64(run)*SubclusterBytes]
			n, err := disk.ReadAt(p, s.index*overlayClusterBytes+within)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			clear(p[n:]) // after the end of the disk
			if _, err := w.WriteAt(p, s.fileOffset+within); err != nil {
				return err
			}
		}
	}
	return nil
}
