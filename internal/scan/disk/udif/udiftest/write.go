package udiftest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strings"
)

const (
	sectorBytes = 512
	kindZero    = 0
	kindRaw     = 1
	kindIgnore  = 2
	kindComment = 0x7ffffffe
	kindEnd     = 0xffffffff

	sumCRC32 = 2 // kind of a checksum
	sumBytes = 136
)

// Options are the form of an image.
type Options struct {
	Packing    Packing
	ChunkBytes int64 // of the disk in a chunk; 0 = 256 KiB
	Parts      int64 // tables that the disk is divided into; 0 = 1
	Fork       bool  // tables in a resource fork instead of a property list
}

// writer writes an image.
type writer struct {
	Options
	out    io.Writer
	at     int64
	sum    hash.Hash32 // of what was written
	tables [][]byte
	sums   []byte // of all tables
}

// Write writes an image of a disk of size bytes, whole sectors.
func Write(out io.Writer, disk io.ReaderAt, size int64, o Options) error {
	o.Parts = max(1, o.Parts)
	if o.ChunkBytes == 0 {
		o.ChunkBytes = 256 << 10
	}
	sum := crc32.NewIEEE()
	w := &writer{Options: o, out: io.MultiWriter(out, sum), sum: sum}
	sectors := size / sectorBytes
	for k := range o.Parts {
		if err := w.part(disk, sectors*k/o.Parts, sectors*(k+1)/o.Parts); err != nil {
			return err
		}
	}
	dataBytes, dataSum := w.at, w.sum.Sum32()
	tables := plist(w.tables)
	if o.Fork {
		tables = fork(w.tables)
	}
	if _, err := w.write(tables); err != nil {
		return err
	}
	be := binary.BigEndian
	t := append([]byte("koly\x00\x00\x00\x04\x00\x00\x02\x00\x00\x00\x00\x01"), make([]byte, 496)...)
	be.PutUint64(t[32:], uint64(dataBytes))
	list := 216
	if o.Fork {
		list = 40
	}
	be.PutUint64(t[list:], uint64(dataBytes))
	be.PutUint64(t[list+8:], uint64(len(tables)))
	be.PutUint32(t[56:], 1) // segment 1 of 1
	be.PutUint32(t[60:], 1)
	copy(t[80:], checksum(dataSum))
	copy(t[352:], checksum(crc32.ChecksumIEEE(w.sums)))
	be.PutUint32(t[488:], 1) // a whole disk
	be.PutUint64(t[492:], uint64(sectors))
	_, err := w.write(t)
	return err
}

func (w *writer) write(b []byte) (at int64, err error) {
	at = w.at
	n, err := w.out.Write(b)
	w.at += int64(n)
	return at, err
}

// checksum encodes a checksum as in tables and trailer.
func checksum(sum uint32) []byte {
	b := make([]byte, sumBytes)
	binary.BigEndian.PutUint32(b, sumCRC32)
	binary.BigEndian.PutUint32(b[4:], 32)
	binary.BigEndian.PutUint32(b[8:], sum)
	return b
}

// part writes the chunks of some sectors, and adds their table.
func (w *writer) part(disk io.ReaderAt, first, end int64) error {
	sum, chunks := crc32.NewIEEE(), []byte(nil)
	add := func(kind uint32, sector, count int64, at, length int64) {
		be := binary.BigEndian
		chunks = be.AppendUint32(be.AppendUint32(chunks, kind), 0)
		for _, n := range []int64{sector, count, at, length} {
			chunks = be.AppendUint64(chunks, uint64(n))
		}
	}
	add(kindComment, 0, 0, 0, 0)
	b := make([]byte, w.ChunkBytes)
	for sector := first; sector < end; {
		n := min(w.ChunkBytes/sectorBytes, end-sector)
		raw := b[:n*sectorBytes]
		if got, err := disk.ReadAt(raw, sector*sectorBytes); got < len(raw) {
			return fmt.Errorf("read the disk: %w", err)
		}
		_, _ = sum.Write(raw)
		kind, packed, err := w.pack(raw, len(w.tables)%2 == 1)
		if err != nil {
			return err
		}
		at, err := w.write(packed)
		if err != nil {
			return err
		}
		add(kind, sector-first, n, at, int64(len(packed)))
		sector += n
	}
	add(kindEnd, end-first, 0, w.at, 0)

	be := binary.BigEndian
	table := append([]byte("mish\x00\x00\x00\x01"), make([]byte, 196)...)
	be.PutUint64(table[8:], uint64(first))
	be.PutUint64(table[16:], uint64(end-first))
	be.PutUint32(table[32:], uint32(w.ChunkBytes/sectorBytes+8))
	be.PutUint32(table[36:], uint32(len(w.tables))) // number of the part
	copy(table[64:], checksum(sum.Sum32()))
	be.PutUint32(table[200:], uint32(len(chunks)/40))
	w.tables = append(w.tables, append(table, chunks...))
	w.sums = be.AppendUint32(w.sums, sum.Sum32())
	return nil
}

// pack returns how a chunk is stored. Zeros are of either kind, and what does not become smaller is stored as it is.
func (w *writer) pack(raw []byte, ignoreZeros bool) (kind uint32, packed []byte, err error) {
	if len(bytes.TrimLeft(raw, "\x00")) == 0 {
		if ignoreZeros {
			return kindIgnore, nil, nil
		}
		return kindZero, nil, nil
	}
	packed, err = w.Packing.Pack(raw)
	if err == nil && len(packed) >= len(raw) {
		return kindRaw, bytes.Clone(raw), nil
	}
	if err == nil && len(packed) == 0 {
		err = errors.New("a chunk was compressed to nothing")
	}
	return w.Packing.Kind, packed, err
}

// plist writes tables as a property list.
func plist(tables [][]byte) []byte {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple Computer//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>resource-fork</key>
	<dict>
		<key>blkx</key>
		<array>
`)
	for k, table := range tables {
		fmt.Fprintf(&b, "\t\t\t<dict>\n\t\t\t\t<key>Attributes</key>\n\t\t\t\t<string>0x0050</string>\n"+
			"\t\t\t\t<key>CFName</key>\n\t\t\t\t<string>part %d</string>\n\t\t\t\t<key>Data</key>\n\t\t\t\t<data>\n", k)
		text := base64.StdEncoding.EncodeToString(table)
		for ; text != ""; text = text[min(len(text), 52):] {
			fmt.Fprintf(&b, "\t\t\t\t%s\n", text[:min(len(text), 52)])
		}
		fmt.Fprintf(&b, "\t\t\t\t</data>\n\t\t\t\t<key>ID</key>\n\t\t\t\t<string>%d</string>\n"+
			"\t\t\t\t<key>Name</key>\n\t\t\t\t<string>part %d</string>\n\t\t\t</dict>\n", k, k)
	}
	b.WriteString("\t\t</array>\n\t\t<key>plst</key>\n\t\t<array>\n\t\t\t<dict>\n\t\t\t\t<key>Data</key>\n" +
		"\t\t\t\t<data>AAAA</data>\n\t\t\t</dict>\n\t\t</array>\n\t</dict>\n</dict>\n</plist>\n")
	return []byte(b.String())
}

// fork writes tables as a resource fork.
func fork(tables [][]byte) []byte {
	const dataAt, headerBytes, mapBytes, listBytes = 256, 16, 28, 10
	be := binary.BigEndian
	var data, refs []byte
	for k, table := range tables {
		refs = be.AppendUint16(be.AppendUint16(refs, uint16(k)), 0xffff)
		refs = be.AppendUint32(be.AppendUint32(refs, uint32(len(data))), 0)
		data = append(be.AppendUint32(data, uint32(len(table))), table...)
	}
	header := make([]byte, 0, headerBytes)
	for _, n := range []int{dataAt, dataAt + len(data), len(data), mapBytes + listBytes + len(refs)} {
		header = be.AppendUint32(header, uint32(n))
	}
	list := append(bytes.Clone(header), make([]byte, mapBytes-headerBytes)...)
	be.PutUint16(list[24:], mapBytes)
	be.PutUint16(list[26:], uint16(mapBytes+listBytes+len(refs)))
	list = append(be.AppendUint16(list, 0), "blkx"...) // one type
	list = be.AppendUint16(be.AppendUint16(list, uint16(len(tables)-1)), listBytes)
	return append(append(append(append(header, make([]byte, dataAt-headerBytes)...), data...), list...), refs...)
}
