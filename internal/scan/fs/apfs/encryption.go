package apfs

import (
	"context"
	"errors"
	"fmt"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs/keybag"
)

const maxKeybagBlocks = 16

// isLocked reports whether the files of the volume cannot be read.
func (v *Volume) isLocked() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.Encrypted() && v.cipher == nil
}

// Unlock makes an encrypted volume readable with the first key that is a password of one of its users, or a recovery
// key. keybag.ErrWrongKey is in the chain of the error when there is none. One call takes some seconds for each user
// and key, and all calls with one budget at most minutes. Once ctx has ended, no other key is tried.
func (v *Volume) Unlock(ctx context.Context, keys [][]byte, b *keybag.Budget) error {
	key, err := v.key(ctx, keys, b)
	if err != nil {
		return fmt.Errorf("unlock volume %q: %w", v.superblock.name, err)
	}
	c, err := keybag.NewCipher(key)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cipher = c
	return nil
}

// key returns the key of the volume.
func (v *Volume) key(ctx context.Context, keys [][]byte, b *keybag.Budget) ([]byte, error) {
	switch sb := v.superblock; {
	case sb.flags&flagOneKey == 0:
		return nil, fmt.Errorf("its files have different keys, which are in hardware: %w", ErrUnsupported)
	case sb.cryptoState != 0:
		return nil, fmt.Errorf("its encryption is being changed, and not complete: %w", ErrUnsupported)
	}
	c := v.container
	all, err := c.readKeybag(c.keybag, keybag.TypeContainer, c.id)
	if err != nil {
		return nil, err
	}
	id := v.superblock.id
	volumeKey, place := find(all, id, keybag.TagVolumeKey), find(all, id, keybag.TagUnlockRecords)
	if volumeKey == nil || place == nil {
		return nil, errors.New("the container does not have its key, which is probably in hardware")
	}
	at, err := keybag.ParsePlace(place)
	if err != nil {
		return nil, err
	}
	users, err := c.readKeybag(at, keybag.TypeVolume, id)
	if err != nil {
		return nil, err
	}
	var unlock [][]byte
	for _, e := range users {
		if e.Tag == keybag.TagUnlockRecords {
			unlock = append(unlock, e.Data)
		}
	}
	return keybag.VolumeKey(ctx, volumeKey, unlock, keys, b)
}

// find returns the data of an entry; nil for none.
func find(entries []keybag.Entry, id [16]byte, tag uint16) []byte {
	for _, e := range entries {
		if e.ID == id && e.Tag == tag {
			return e.Data
		}
	}
	return nil
}

// readKeybag reads and decrypts a keybag.
func (c *Container) readKeybag(at keybag.Place, kind uint32, id [16]byte) ([]keybag.Entry, error) {
	if at.Count == 0 || at.Count > maxKeybagBlocks {
		return nil, damaged("a keybag has %d blocks", at.Count)
	}
	b := make([]byte, int(at.Count)*c.device.blockSize)
	if err := c.device.read(b, at.Block, 0); err != nil {
		return nil, err
	}
	x, err := keybag.BagCipher(id)
	if err != nil {
		return nil, err
	}
	x.Decrypt(b, c.device.firstUnit(at.Block))
	switch {
	case !checksumValid(b):
		return nil, damaged("the keybag in block %d has a wrong checksum", at.Block)
	case le.Uint32(b[24:]) != kind:
		return nil, damaged("the keybag in block %d is of type %#x", at.Block, le.Uint32(b[24:]))
	}
	return keybag.Parse(b[objectHeaderSize:])
}

// firstUnit returns the number of the first encrypted unit of a block.
func (d *device) firstUnit(block uint64) uint64 {
	return block * uint64(d.blockSize/keybag.UnitBytes)
}

// readExtent reads from an extent that has a block.
func (f *FS) readExtent(p []byte, e extent, off int64) error {
	if f.cipher == nil {
		return f.device.read(p, e.block, off)
	}
	for len(p) > 0 {
		in, unit := off%keybag.UnitBytes, f.device.firstUnit(e.tweak)+uint64(off/keybag.UnitBytes)
		whole := len(p) / keybag.UnitBytes * keybag.UnitBytes
		if in == 0 && whole > 0 { // into p itself
			if err := f.device.read(p[:whole], e.block, off); err != nil {
				return err
			}
			f.cipher.Decrypt(p[:whole], unit)
			p, off = p[whole:], off+int64(whole)
			continue
		}
		var b [keybag.UnitBytes]byte
		if err := f.device.read(b[:], e.block, off-in); err != nil {
			return err
		}
		f.cipher.Decrypt(b[:], unit)
		n := copy(p, b[in:])
		p, off = p[n:], off+int64(n)
	}
	return nil
}
