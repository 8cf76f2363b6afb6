package keybag

import (
	"crypto/aes"

	"golang.org/x/crypto/xts"
)

// UnitBytes is the length of what is encrypted at a time.
const UnitBytes = 512

// KeyBytes is the length of the key of a volume: two keys of AES-128.
const KeyBytes = 32

// Cipher decrypts with AES-XTS.
type Cipher struct{ xts *xts.Cipher }

// NewCipher returns the cipher of a key of KeyBytes.
func NewCipher(key []byte) (*Cipher, error) {
	c, err := xts.NewCipher(aes.NewCipher, key)
	return &Cipher{c}, err
}

// Decrypt decrypts whole units in place. first is the number of the first one.
func (c *Cipher) Decrypt(b []byte, first uint64) {
	for ; len(b) >= UnitBytes; b = b[UnitBytes:] {
		c.xts.Decrypt(b[:UnitBytes], b[:UnitBytes], first)
		first++
	}
}

// BagCipher returns the cipher of a keybag: that of a container is encrypted with the UUID of the container, that of a
// volume with the UUID of the volume.
func BagCipher(id [16]byte) (*Cipher, error) { return NewCipher(append(id[:], id[:]...)) }
