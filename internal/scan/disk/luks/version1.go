package luks

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

const (
	header1Bytes = 592
	slots1       = 8
	slot1Bytes   = 48
	slot1Active  = 0x00ac71f3
	digest1Bytes = 20
	salt1Bytes   = 32
)

// readHeader1 reads the header of version 1, which has one copy.
func (c *Container) readHeader1() error {
	b := make([]byte, header1Bytes)
	if err := readFullAt(c.r, b, 0); err != nil {
		return err
	}
	be := binary.BigEndian
	hash, keyBytes := cString(b[72:104]), int64(be.Uint32(b[108:]))
	if err := checkCipher(cString(b[8:40])+"-"+cString(b[40:72]), keyBytes); err != nil {
		return err
	}
	c.segment = segment{start: int64(be.Uint32(b[104:])) * sectorBytes, sectorBytes: sectorBytes}
	if c.segment.start == 0 {
		return errDetached
	}
	if c.segment.length = c.size - c.segment.start; c.segment.start < header1Bytes || c.segment.length < 0 {
		return damaged("its encrypted data is at byte %d", c.segment.start)
	}
	d := digest{derivation{
		kind: kdfPBKDF2, hash: hash, iterations: int64(be.Uint32(b[164:])), salt: b[132 : 132+salt1Bytes],
	}, b[112 : 112+digest1Bytes]}
	if err := d.pbkdf2.check(); err != nil {
		return fmt.Errorf("digest of LUKS: %w", err)
	}
	for k := range slots1 {
		s := b[208+k*slot1Bytes:]
		if be.Uint32(s) != slot1Active {
			continue
		}
		slot := keySlot{
			name: strconv.Itoa(k), keyBytes: int(keyBytes), areaKey: int(keyBytes), stripes: int(be.Uint32(s[44:])),
			hash: hash, areaStart: int64(be.Uint32(s[40:])) * sectorBytes, digest: d,
			kdf: derivation{
				kind: kdfPBKDF2, hash: hash, iterations: int64(be.Uint32(s[4:])), salt: s[8 : 8+salt1Bytes],
			},
		}
		slot.areaBytes = c.segment.start - slot.areaStart
		c.addSlot(slot)
	}
	return c.checkSlots()
}
