package apfs

import (
	"cmp"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs/keybag"
)

// Flags of an entry of an object map.
const (
	omapDeleted   = 1
	omapEncrypted = 4
	omapNoHeader  = 8
)

// omap maps a virtual object to its block, as of a transaction.
type omap struct {
	tree   *tree
	cipher *keybag.Cipher // of encrypted objects; nil: they cannot be read
	cache  *generationCache[omapKey, omapEntry]
}

type omapKey struct{ id, xid uint64 }

type omapEntry struct {
	block uint64
	flags uint32
}

// openOMap reads the object map in a block. c decrypts its encrypted objects; nil for none.
func openOMap(d *device, block uint64, c *keybag.Cipher) (*omap, error) {
	b, err := d.readObject(block, typeOMap)
	if err != nil {
		return nil, err
	}
	t, err := openTree(d, nil, le.Uint64(b[48:]), 0)
	if err != nil {
		return nil, err
	}
	if !t.root.fixedSizes || t.root.keySize != 16 || t.root.valueSize != 16 {
		return nil, damaged("block %d names an object map of a wrong kind", block)
	}
	return &omap{tree: t, cipher: c, cache: newGenerationCache[omapKey, omapEntry](16 << 10)}, nil
}

// compare orders keys of object maps: by object, then by transaction.
func (k omapKey) compare(b []byte) int {
	if len(b) < 16 {
		return -1
	}
	if c := cmp.Compare(le.Uint64(b), k.id); c != 0 {
		return c
	}
	return cmp.Compare(le.Uint64(b[8:]), k.xid)
}

// find returns the newest entry of an object that is not newer than xid.
func (m *omap) find(id, xid uint64) (omapEntry, error) {
	k := omapKey{id, xid}
	if e, ok := m.cache.get(k); ok {
		return e, nil
	}
	c, ok, err := m.tree.seekBefore(k)
	if err != nil {
		return omapEntry{}, err
	}
	if !ok {
		return omapEntry{}, damaged("object %d is in no object map", id)
	}
	if key := c.key(); len(key) < 16 || le.Uint64(key) != id {
		return omapEntry{}, damaged("object %d is in no object map", id)
	}
	v := c.value()
	if len(v) < 16 {
		return omapEntry{}, damaged("object %d has no place", id)
	}
	e := omapEntry{flags: le.Uint32(v), block: le.Uint64(v[8:])}
	switch {
	case e.flags&omapDeleted != 0:
		return e, damaged("object %d is deleted", id)
	case e.flags&omapEncrypted != 0 && m.cipher == nil:
		return e, ErrEncrypted
	}
	m.cache.add(k, e)
	return e, nil
}
