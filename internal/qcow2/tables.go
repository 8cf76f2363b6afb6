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
	for _, write := range []func(io.WriterAt) error{l.writeL1, l.writeL2, l.writeCounts} {
		if err := write(f); err != nil {
			return fmt.Errorf("tables of an overlay: %w", err)
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.WriteAt(l.header(), 0); err != nil {
		return err
	}
	return f.Sync()
}

func (l *Layout) writeL1(w io.WriterAt) error {
	b := make([]byte, len(l.l1)*entryBytes)
	for k, at := range l.l1 {
		if at != 0 {
			binary.BigEndian.PutUint64(b[k*entryBytes:], uint64(at)|entryCopied)
		}
	}
	_, err := w.WriteAt(b, layoutSize)
	return err
}

func (l *Layout) writeL2(w io.WriterAt) error {
	table := make([]byte, layoutSize)
	first := int64(layoutSize) // offset of the nonzero bytes
	for k, s := range l.clusters {
		at := s.cluster % tableEntries * extendedBytes
		first = min(first, at)
		b := table[at:]
		if s.place != 0 {
			binary.BigEndian.PutUint64(b, uint64(s.place)|entryCopied)
		}
		binary.BigEndian.PutUint32(b[8:], s.zero)
		binary.BigEndian.PutUint32(b[12:], s.data)
		region := s.cluster / tableEntries
		if k+1 < len(l.clusters) && l.clusters[k+1].cluster/tableEntries == region {
			continue
		}
		if _, err := w.WriteAt(table[first:at+extendedBytes], l.l1[region]+first); err != nil {
			return err
		}
		clear(table)
		first = layoutSize
	}
	return nil
}

// writeCounts writes a refcount of one for every cluster of the file.
func (l *Layout) writeCounts(w io.WriterAt) error {
	places := make([]byte, l.counts*entryBytes)
	ones := make([]byte, layoutSize)
	for k := 1; k < len(ones); k += 2 {
		ones[k] = 1
	}
	for k := range l.counts {
		at := (l.countBlocks() + k) * layoutSize
		binary.BigEndian.PutUint64(places[k*entryBytes:], uint64(at))
		used := min(l.total-k*countsOf, countsOf)
		if _, err := w.WriteAt(ones[:2*used], at); err != nil {
			return err
		}
	}
	_, err := w.WriteAt(places, l.countTable()*layoutSize)
	return err
}

func (l *Layout) header() []byte {
	h := make([]byte, headerFull)
	be := binary.BigEndian
	be.PutUint32(h[0:], magic)
	be.PutUint32(h[4:], 3)
	be.PutUint32(h[20:], layoutBits)
	be.PutUint64(h[24:], uint64(l.size))
	be.PutUint32(h[36:], uint32(len(l.l1)))
	be.PutUint64(h[40:], layoutSize) // L1 table
	be.PutUint64(h[48:], uint64(l.countTable()*layoutSize))
	be.PutUint32(h[56:], 1) // clusters of the refcount table
	be.PutUint64(h[72:], featureExtendedL2)
	be.PutUint32(h[96:], 4) // a count has 1<<4 bits
	be.PutUint32(h[100:], headerFull)
	return h
}
