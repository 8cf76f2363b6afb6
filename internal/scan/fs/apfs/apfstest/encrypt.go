package apfstest

import (
	"crypto/aes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"golang.org/x/crypto/xts"
)

const (
	unitBytes  = 512
	iterations = 1000 // of a password; macOS takes far more
)

// containerID is the UUID of all containers.
var containerID = [16]byte([]byte("buildyard-tests!"))

// recoveryUser has the personal recovery key.
var recoveryUser = [16]byte{0xeb, 0xc6, 0xc0, 0x64, 0, 0, 0x11, 0xaa, 0xaa, 0x11, 0, 0x30, 0x65, 0x43, 0xec, 0xac}

// volumeID returns the UUID of a volume.
func volumeID(index int) [16]byte {
	id := [16]byte([]byte("volume-for-tests"))
	id[15] = byte(index)
	return id
}

// cipher encrypts with AES-XTS.
type cipher struct{ *xts.Cipher }

func newCipher(key []byte) *cipher {
	c, err := xts.NewCipher(aes.NewCipher, key)
	if err != nil {
		panic(err)
	}
	return &cipher{c}
}

// encrypt returns whole units in encrypted form, of which the first one is that of a block.
func (c *cipher) encrypt(b []byte, block uint64) []byte {
	out := make([]byte, len(b))
	for at := 0; at < len(b); at += unitBytes {
		c.Encrypt(out[at:at+unitBytes], b[at:at+unitBytes], block*BlockSize/unitBytes+uint64(at/unitBytes))
	}
	return out
}

// secret returns some bytes that only depend on a name.
func secret(format string, args ...any) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, format, args...))
	return sum[:]
}

// key returns the key of a volume, and its ID.
func (v *Volume) key(index int) (key, id []byte) {
	key, id = secret("volume key %d", index), secret("volume key ID %d", index)[:16]
	if v.HalfKey {
		sum := sha256.Sum256(append(key[:16:16], id...))
		copy(key[16:], sum[:16])
	}
	return key, id
}

// newCipher returns the cipher of a volume; nil if it is not encrypted with passwords.
func (v *Volume) newCipher(index int) *cipher {
	if len(v.Passwords) == 0 {
		return nil
	}
	key, _ := v.key(index)
	return newCipher(key)
}

// addKeys writes the keybag of a volume, and adds the volume to that of the container.
func (w *writer) addKeys(v *Volume, index int) {
	if len(v.Passwords) == 0 {
		return
	}
	id, wrapping := volumeID(index), secret("wrapping key %d", index)
	var users [][]byte
	for i, password := range v.Passwords {
		salt := secret("salt %d %d", index, i)[:16]
		derived, err := pbkdf2.Key(sha256.New, password, salt, iterations, 32)
		if err != nil {
			panic(err)
		}
		user := [16]byte(secret("user %d %d", index, i))
		switch i {
		case 0:
			user = id // as for the password of a disk without users
		case 1:
			user = recoveryUser
		}
		users = append(users,
			entry(user, 4, []byte("hint")),
			entry(user, 3, keyRecord(user[:], v.wrap(derived, wrapping),
				field(0x84, []byte{iterations >> 8, iterations & 0xff}), field(0x85, salt))))
	}
	place := w.keybag(typeRecs, id, users)
	key, keyID := v.key(index)
	wrapped := wrap(wrapping, key)
	if v.HalfKey {
		wrapped = halfWrap(wrapping, key)
	}
	w.bag = append(w.bag, entry(id, 2, keyRecord(keyID, wrapped)), entry(id, 3, place))
}

// wrap returns the key of the volume's key in wrapped form.
func (v *Volume) wrap(derived, wrapping []byte) []byte {
	if v.HalfWrapping {
		return halfWrap(derived, wrapping)
	}
	return wrap(derived, wrapping)
}

// halfWrap wraps the first half of a key with the first half of another one, in as many bytes as whole ones take.
func halfWrap(by, key []byte) []byte { return append(wrap(by[:16], key[:16]), make([]byte, 16)...) }

// containerBag writes the keybag of the container, and returns its place; nil if no volume has keys.
func (w *writer) containerBag() []byte {
	if len(w.bag) == 0 {
		return nil
	}
	return w.keybag(typeKeys, containerID, w.bag)
}

// keybag writes a keybag, encrypted with an ID, and returns its place.
func (w *writer) keybag(kind uint32, id [16]byte, entries [][]byte) []byte {
	b := make([]byte, 48)
	for _, e := range entries {
		b = append(b, e...)
		b = append(b, make([]byte, -len(e)&15)...)
	}
	n := len(b)
	b = append(b, make([]byte, -n&(BlockSize-1))...)
	le.PutUint16(b[32:], 2)
	le.PutUint16(b[34:], uint16(len(entries)))
	le.PutUint32(b[36:], uint32(n-32)) // with the header of 16 bytes
	block := w.alloc(len(b) / BlockSize)
	seal(header{block, newestXID, kind, 0}, b)
	w.put(block, newCipher(append(id[:], id[:]...)).encrypt(b, block))
	return le.AppendUint64(le.AppendUint64(nil, block), uint64(len(b)/BlockSize))
}

// entry returns an entry of a keybag.
func entry(id [16]byte, tag uint16, data []byte) []byte {
	b := le.AppendUint16(append([]byte{}, id[:]...), tag)
	b = le.AppendUint16(b, uint16(len(data)))
	return append(append(b, 0, 0, 0, 0), data...)
}

// field returns a field in DER.
func field(tag byte, content []byte) []byte {
	head := []byte{tag, byte(len(content))}
	if len(content) >= 0x80 {
		head = []byte{tag, 0x81, byte(len(content))}
	}
	return append(head, content...)
}

// keyRecord returns the record of a wrapped key.
func keyRecord(id, wrapped []byte, more ...[]byte) []byte {
	content := append(field(0x80, []byte{0}), field(0x81, id)...)
	content = append(append(content, field(0x82, make([]byte, 8))...), field(0x83, wrapped)...)
	for _, m := range more {
		content = append(content, m...)
	}
	content = field(0xa3, content)
	salt := secret("HMAC salt")[:8]
	key := sha256.Sum256(append([]byte{1, 0x16, 0x20, 0x17, 0x15, 5}, salt...))
	mac := hmac.New(sha256.New, key[:])
	mac.Write(content)
	b := append(field(0x80, []byte{0}), field(0x81, mac.Sum(nil))...)
	return field(0x30, append(append(b, field(0x82, salt)...), content...))
}

// wrap wraps a key with another one, by RFC 3394.
func wrap(with, key []byte) []byte {
	block, err := aes.NewCipher(with)
	if err != nil {
		panic(err)
	}
	r := append([]byte{0xa6, 0xa6, 0xa6, 0xa6, 0xa6, 0xa6, 0xa6, 0xa6}, key...)
	n := len(key) / 8
	for j := range 6 {
		for i := 1; i <= n; i++ {
			var b [16]byte
			copy(b[:8], r[:8])
			copy(b[8:], r[8*i:8*i+8])
			block.Encrypt(b[:], b[:])
			binary.BigEndian.PutUint64(r, binary.BigEndian.Uint64(b[:])^uint64(n*j+i))
			copy(r[8*i:], b[8:])
		}
	}
	return r
}
