package disktest

import (
	"encoding/binary"
	"io"
)

// AppleHFS is the type of a partition with HFS+ in an Apple partition map.
const AppleHFS = "Apple_HFS"

// WriteAppleMap writes an Apple partition map to a disk of size bytes: with an entry for itself, the parts and the
// free rest, as macOS does.
func WriteAppleMap(w io.WriterAt, size, block int64, parts ...Part) error {
	be := binary.BigEndian
	const most = 62 // entries that the map may have
	all := append([]Part{{Type: "Apple_partition_map", Name: "Apple", Start: block, Length: most * block}}, parts...)
	last := all[len(all)-1]
	if rest := last.Start + last.Length; rest < size {
		all = append(all, Part{Type: "Apple_Free", Start: rest, Length: size - rest})
	}
	first := make([]byte, 512)
	copy(first, "ER")
	be.PutUint16(first[2:], uint16(block))
	be.PutUint32(first[4:], uint32(size/block))
	if _, err := w.WriteAt(first, 0); err != nil {
		return err
	}
	for k, p := range all {
		b := make([]byte, 512)
		copy(b, "PM")
		be.PutUint32(b[4:], uint32(len(all)))
		be.PutUint32(b[8:], uint32(p.Start/block))
		be.PutUint32(b[12:], uint32(p.Length/block))
		copy(b[16:48], p.Name)
		copy(b[48:80], p.Type)
		be.PutUint32(b[84:], uint32(p.Length/block))
		be.PutUint32(b[88:], 0x33) // it is valid, allocated, readable and writable
		if _, err := w.WriteAt(b, int64(k+1)*block); err != nil {
			return err
		}
	}
	return nil
}
