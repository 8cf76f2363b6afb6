package lvm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	sectorBytes    = 512
	labelSectors   = 4 // the label is in one of so many sectors at the beginning
	labelMagic     = "LABELONE"
	labelType      = "LVM2 001"
	idBytes        = 32
	maxAreas       = 16      // of one kind, of a physical volume
	maxTextBytes   = 4 << 20 // of metadata
	initialCRC     = 0xf597a6cf
	areaMagic      = " LVM2 x[5A%r0N*>"
	areaHeadBytes  = 512
	areaVersion    = 1
	ignoredTextBit = 1
)

// LabelBytes is the number of bytes at the beginning of a device in which its label is.
const LabelBytes = labelSectors * sectorBytes

// checksum returns the checksum of LVM: CRC-32 of IEEE with another initial value and without the final inversion.
func checksum(b []byte) uint32 { return ^crc32.Update(^uint32(initialCRC), crc32.IEEETable, b) }

// IsPhysicalVolume reports whether a device that begins with some bytes has an intact label. It needs LabelBytes of
// longer devices.
func IsPhysicalVolume(beginning []byte) bool {
	_, err := findLabel(beginning)
	return err == nil
}

var errNoLabel = errors.New("no label of a physical volume of LVM2 found in the first four sectors")

// findLabel returns the sector with the label, from the label on.
func findLabel(b []byte) ([]byte, error) {
	found := errNoLabel
	for k := range labelSectors {
		if len(b) < (k+1)*sectorBytes {
			break
		}
		s := b[k*sectorBytes : (k+1)*sectorBytes]
		if !bytes.HasPrefix(s, []byte(labelMagic)) || string(s[24:32]) != labelType {
			continue
		}
		le := binary.LittleEndian
		if checksum(s[20:]) != le.Uint32(s[16:]) || le.Uint64(s[8:]) != uint64(k) {
			found = damaged("the label of its physical volume is not what its checksum says")
			continue
		}
		return s, nil
	}
	return nil, found
}

// PhysicalVolume is a device of a volume group.
type PhysicalVolume struct {
	id    string
	r     io.ReaderAt
	size  int64     // of r in bytes
	group *metadata // the newest in its own areas; nil: it has none
	err   error     // why metadata could not be read; nil when group is set

	hasText bool // it has areas for metadata, though they may be empty
}

// areaRange is where an area is, in bytes of the device.
type areaRange struct{ off, size uint64 }

// Open reads the label of a device and the metadata of its volume group, as far as the device has a copy. Damaged
// metadata does not make it fail: another device of the group may have it.
func Open(r io.ReaderAt, size int64) (*PhysicalVolume, error) {
	b := make([]byte, min(LabelBytes, size))
	if err := readFullAt(r, b, 0); err != nil {
		return nil, err
	}
	label, err := findLabel(b)
	if err != nil {
		return nil, err
	}
	v := &PhysicalVolume{r: r, size: size}
	areas, err := v.readHeader(label)
	if err != nil {
		return nil, err
	}
	v.hasText = len(areas) > 0
	for _, a := range areas {
		group, err := v.readArea(a)
		switch {
		case err != nil:
			v.err = err
		case group != nil && (v.group == nil || group.sequence > v.group.sequence):
			v.group = group
		}
	}
	if v.group != nil {
		v.err = nil
	}
	return v, nil
}

// readHeader reads the header that the label points to, and returns the metadata areas.
func (v *PhysicalVolume) readHeader(label []byte) ([]areaRange, error) {
	le := binary.LittleEndian
	at := le.Uint32(label[20:])
	if at < 32 || at > sectorBytes-idBytes-8 {
		return nil, damaged("the header of its physical volume is at byte %d of the label", at)
	}
	b := label[at:]
	v.id = formatID(b[:idBytes])
	if v.id == "" {
		return nil, damaged("the identifier of its physical volume is not text")
	}
	b = b[idBytes+8:]
	_, b, err := readRanges(b) // areas of data: the metadata says where extents begin
	if err != nil {
		return nil, err
	}
	areas, _, err := readRanges(b)
	return areas, err
}

// readRanges reads a list that ends with an empty range.
func readRanges(b []byte) (list []areaRange, rest []byte, err error) {
	le := binary.LittleEndian
	for ; len(b) >= 16; b = b[16:] {
		a := areaRange{le.Uint64(b), le.Uint64(b[8:])}
		if a == (areaRange{}) {
			return list, b[16:], nil
		}
		if len(list) == maxAreas {
			break
		}
		list = append(list, a)
	}
	return nil, nil, damaged("the list of areas of its physical volume does not end")
}

// formatID formats an identifier as the tools and the metadata do, which group its characters; "" for one with
// other characters.
func formatID(b []byte) string {
	out := make([]byte, 0, len(b)+6)
	for i, c := range b {
		if !isIDByte(c) {
			return ""
		}
		if i >= 6 && i <= 26 && (i-6)%4 == 0 {
			out = append(out, '-')
		}
		out = append(out, c)
	}
	return string(out)
}

// readArea reads the current metadata in an area; nil: it is empty.
func (v *PhysicalVolume) readArea(a areaRange) (*metadata, error) {
	if a.size <= areaHeadBytes || a.off > uint64(v.size) || a.size > uint64(v.size)-a.off {
		return nil, damaged("a metadata area of %d bytes at byte %d is not on the device", a.size, a.off)
	}
	head := make([]byte, areaHeadBytes)
	if err := readFullAt(v.r, head, int64(a.off)); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	if checksum(head[4:]) != le.Uint32(head) || string(head[4:20]) != areaMagic {
		return nil, damaged("the header of a metadata area is not what its checksum says")
	}
	if version := le.Uint32(head[20:]); version != areaVersion {
		return nil, fmt.Errorf("unsupported version %d of a metadata area", version)
	}
	if le.Uint64(head[24:]) != a.off || le.Uint64(head[32:]) != a.size {
		return nil, damaged("the header of a metadata area has another position")
	}
	off, size, sum, flags := le.Uint64(head[40:]), le.Uint64(head[48:]), le.Uint32(head[56:]), le.Uint32(head[60:])
	if flags&ignoredTextBit != 0 {
		v.hasText = false // other devices of the group have it
		return nil, nil
	}
	if off == 0 {
		return nil, nil
	}
	if off < areaHeadBytes || off >= a.size || size > a.size-areaHeadBytes {
		return nil, damaged("metadata of %d bytes at byte %d is not within its area", size, off)
	}
	if size > maxTextBytes {
		return nil, fmt.Errorf("metadata of %d bytes exceeds the limit of %d", size, maxTextBytes)
	}
	text := make([]byte, size)
	first := min(size, a.size-off) // the rest is at the beginning of the area, after its header
	if err := readFullAt(v.r, text[:first], int64(a.off+off)); err != nil {
		return nil, err
	}
	if err := readFullAt(v.r, text[first:], int64(a.off+areaHeadBytes)); err != nil {
		return nil, err
	}
	if checksum(text) != sum {
		return nil, damaged("metadata is not what its checksum says")
	}
	return parseMetadata(text)
}

// readFullAt reads all of p.
func readFullAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}
