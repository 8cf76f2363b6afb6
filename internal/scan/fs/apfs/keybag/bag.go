package keybag

import (
	"encoding/binary"
	"fmt"
)

// Types of the objects that hold keybags, in their headers.
const (
	TypeContainer = 0x6b657973 // "keys"
	TypeVolume    = 0x72656373 // "recs"
)

// Tags of entries.
const (
	// TagVolumeKey is that of the key of a volume, in the keybag of the container.
	TagVolumeKey = 2
	// TagUnlockRecords is that of the place of a volume's keybag in the keybag of the container, and in that of the
	// volume those of records that a password opens.
	TagUnlockRecords = 3
)

const (
	version      = 2
	headerBytes  = 16
	entryBytes   = 24
	entryAligned = 16
	maxEntries   = 1024
)

// Entry is an entry of a keybag.
type Entry struct {
	ID   [16]byte // of a volume, or of a user
	Tag  uint16
	Data []byte
}

// Parse reads the entries of a keybag, which is decrypted and without the header of its object.
func Parse(b []byte) ([]Entry, error) {
	if len(b) < headerBytes || binary.LittleEndian.Uint16(b) != version {
		return nil, fmt.Errorf("%w: it is not of version %d", ErrDamaged, version)
	}
	count, length := int(binary.LittleEndian.Uint16(b[2:])), int64(binary.LittleEndian.Uint32(b[4:]))
	if length > int64(len(b)) || count > maxEntries {
		return nil, fmt.Errorf("%w: it has %d entries in %d bytes", ErrDamaged, count, length)
	}
	b = b[headerBytes:]
	out := make([]Entry, 0, count)
	for k := range count {
		if len(b) < entryBytes {
			return nil, fmt.Errorf("%w: entry %d is cut off", ErrDamaged, k)
		}
		n := entryBytes + int(binary.LittleEndian.Uint16(b[18:]))
		if n > len(b) {
			return nil, fmt.Errorf("%w: entry %d has %d bytes", ErrDamaged, k, n)
		}
		out = append(out, Entry{ID: [16]byte(b), Tag: binary.LittleEndian.Uint16(b[16:]), Data: b[entryBytes:n:n]})
		b = b[min(len(b), (n+entryAligned-1)/entryAligned*entryAligned):]
	}
	return out, nil
}

// Place is a range of blocks.
type Place struct{ Block, Count uint64 }

// ParsePlace reads the entry with the place of a volume's keybag.
func ParsePlace(b []byte) (Place, error) {
	if len(b) != 16 {
		return Place{}, fmt.Errorf("%w: the place of another one has %d bytes", ErrDamaged, len(b))
	}
	return Place{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}, nil
}
