package qcow2

import (
	"encoding/binary"
	"fmt"
	"io"
)

const entryCopied = 1 << 63 // this is the only reference

// File is the destination of an overlay.
type File interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error
}

// Finish writes the tables after all data (their unused parts stay a hole), and the header last:
// before, the file is not a valid image. When it returns, the image is on the disk.
func (l *Layout) Finish(f File) error {
	if err := f.Truncate(l.FileSize()); err != nil {
		return err
	}
	for _, write := range []func(io.WriterAt) error{l.writeL1, l.writeL2, l.writeRefcounts} {
		if err := write(f); err != nil {
			return fmt.Errorf("write tables of the overlay: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.WriteAt(l.encodeHeader(), 0); err != nil {
		return err
	}
	return f.Sync()
}

func (l *Layout) writeL1(w io.WriterAt) error {
	b := make([]byte, len(l.l1)*l2EntryBytes)
	for k, at := range l.l1 {
		if at != 0 {
			binary.BigEndian.PutUint64(b[k*l2EntryBytes:], uint64(at)|entryCopied)
		}
	}
	_, err := w.WriteAt(b, overlayClusterBytes)
	return err
}

func (l *Layout) writeL2(w io.WriterAt) error {
	table := make([]byte, overlayClusterBytes)
	first := int64(overlayClusterBytes) // offset of the nonzero bytes
	for k, s := range l.clusters {
		at := s.index % l2TableEntries * extendedL2EntryBytes
		first = min(first, at)
		b := table[at:]
		if s.fileOffset != 0 {
			binary.BigEndian.PutUint64(b, uint64(s.fileOffset)|entryCopied)
		}
		binary.BigEndian.PutUint32(b[8:], s.zeroBits)
		binary.BigEndian.PutUint32(b[12:], s.dataBits)
		region := s.index / l2TableEntries
		if k+1 < len(l.clusters) && l.clusters[k+1].index/l2TableEntries == region {
			continue
		}
		if _, err := w.WriteAt(table[first:at+extendedL2EntryBytes], l.l1[region]+first); err != nil {
			return err
		}
		clear(table)
		first = overlayClusterBytes
	}
	return nil
}

// writeRefcounts writes a refcount of one for every cluster of the file.
func (l *Layout) writeRefcounts(w io.WriterAt) error {
	places := make([]byte, l.refcountBlockClusters*l2EntryBytes)
	ones := make([]byte, overlayClusterBytes)
	for k := 1; k < len(ones); k += 2 {
		ones[k] = 1
	}
	for k := range l.refcountBlockClusters {
		at := (l.firstRefcountBlock() + k) * overlayClusterBytes
		binary.BigEndian.PutUint64(places[k*l2EntryBytes:], uint64(at))
		used := min(l.totalClusters-k*refcountsPerBlock, refcountsPerBlock)
		if _, err := w.WriteAt(ones[:2*used], at); err != nil {
			return err
		}
	}
	_, err := w.WriteAt(places, l.refcountTableCluster()*overlayClusterBytes)
	return err
}

func (l *Layout) encodeHeader() []byte {
	h := make([]byte, headerFullBytes)
	be := binary.BigEndian
	be.PutUint32(h[0:], magic)
	be.PutUint32(h[4:], 3)
	be.PutUint32(h[20:], overlayClusterBits)
	be.PutUint64(h[24:], uint64(l.size))
	be.PutUint32(h[36:], uint32(len(l.l1)))
	be.PutUint64(h[40:], overlayClusterBytes) // L1 table
	be.PutUint64(h[48:], uint64(l.refcountTableCluster()*overlayClusterBytes))
	be.PutUint32(h[56:], 1) // clusters of the refcount table
	be.PutUint64(h[72:], featureExtendedL2)
	be.PutUint32(h[96:], 4) // a count has 1<<4 bits
	be.PutUint32(h[100:], headerFullBytes)
	return h
}
