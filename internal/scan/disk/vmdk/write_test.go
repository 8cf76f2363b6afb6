package vmdk_test

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

const sector = 512

// form is the form of a sparse image.
type form struct {
	grain, entries int  // sectors of a grain, entries of a table
	deflate        bool // grains are compressed
	markers        bool // before grains and tables
	footer         bool // the grain directory is named at the end, as in what VMware and VirtualBox export
	zeroGrains     bool // those of zeros have an entry
	parent         string
}

// Types of markers.
const (
	markTable     = 1
	markDirectory = 2
	markFooter    = 3
)

// write returns a sparse image of a disk, in the order in which a stream is written: grains, tables, directory.
func (f form) write(t testing.TB, disk []byte) []byte {
	t.Helper()
	le := binary.LittleEndian
	text := "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"streamOptimized\"\n\n" +
		fmt.Sprintf("# Extent description\nRW %d SPARSE \"disk.vmdk\"\n\n# The Disk Data Base\n#DDB\n\n"+
			"ddb.adapterType = \"ide\"\n", len(disk)/sector)
	if f.parent != "" {
		text = strings.Replace(text, "ffffffff", "1234abcd\nparentFileNameHint=\""+f.parent+"\"", 1)
	}
	out := make([]byte, 22*sector)
	copy(out[sector:], text)
	mark := func(kind, sectors int) {
		if f.markers {
			b := make([]byte, sector)
			le.PutUint64(b, uint64(sectors))
			le.PutUint32(b[12:], uint32(kind))
			out = append(out, b...)
		}
	}
	place := func(b []byte) uint32 { // appends whole sectors
		at := len(out) / sector
		out = append(out, b...)
		out = append(out, make([]byte, (sector-len(out)%sector)%sector)...)
		return uint32(at)
	}

	grainBytes := f.grain * sector
	grains := (len(disk) + grainBytes - 1) / grainBytes
	tables := make([]uint32, (grains+f.entries-1)/f.entries*f.entries)
	for k := range grains {
		data := disk[k*grainBytes : min(len(disk), (k+1)*grainBytes)]
		if len(bytes.TrimLeft(data, "\x00")) == 0 {
			if f.zeroGrains {
				tables[k] = 1
			}
			continue
		}
		if f.deflate {
			data = f.packed(t, data, k)
		}
		tables[k] = place(data)
	}
	var directory []byte
	for k := 0; k < len(tables); k += f.entries {
		var table []byte
		for _, e := range tables[k : k+f.entries] {
			table = le.AppendUint32(table, e)
		}
		if len(bytes.TrimLeft(table, "\x00")) == 0 {
			directory = le.AppendUint32(directory, 0)
			continue
		}
		mark(markTable, (len(table)+sector-1)/sector)
		directory = le.AppendUint32(directory, place(table))
	}
	mark(markDirectory, (len(directory)+sector-1)/sector)
	at := place(directory)

	copy(out, f.header(len(disk), uint64(at)))
	if f.footer {
		mark(markFooter, 1)
		place(f.header(len(disk), uint64(at)))
		place(make([]byte, sector)) // the end of the stream
		copy(out, f.header(len(disk), 1<<64-1))
	}
	return out
}

// packed returns a compressed grain, with its marker.
func (f form) packed(t testing.TB, data []byte, index int) []byte {
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var head []byte
	if f.markers {
		head = binary.LittleEndian.AppendUint64(head, uint64(index*f.grain))
		head = binary.LittleEndian.AppendUint32(head, uint32(packed.Len()))
	}
	return append(head, packed.Bytes()...)
}

func (f form) header(diskBytes int, directory uint64) []byte {
	b, le := make([]byte, sector), binary.LittleEndian
	flags := uint32(1)
	if f.zeroGrains {
		flags |= 1 << 2
	}
	if f.deflate {
		flags |= 1 << 16
		le.PutUint16(b[77:], 1)
	}
	if f.markers {
		flags |= 1 << 17
	}
	copy(b, "KDMV")
	le.PutUint32(b[4:], 3)
	le.PutUint32(b[8:], flags)
	le.PutUint64(b[12:], uint64(diskBytes/sector))
	le.PutUint64(b[20:], uint64(f.grain))
	le.PutUint64(b[28:], 1) // descriptor
	le.PutUint64(b[36:], 20)
	le.PutUint32(b[44:], uint32(f.entries))
	le.PutUint64(b[56:], directory)
	le.PutUint64(b[64:], 22)
	copy(b[73:], "\n \r\n")
	return b
}
