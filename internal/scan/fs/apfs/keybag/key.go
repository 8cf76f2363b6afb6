package keybag

import (
	"context"
	"crypto/aes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

const (
	wrappedBytes = 40 // of a key of 32 bytes
	wrapUnit     = 8
	saltBytes    = 16
	flagsBytes   = 8
	idBytes      = 16

	maxIterations = 16 << 20 // of one record; macOS chooses some hundred thousand
)

// hmacPrefix is what the key of a record's HMAC is derived from, with the salt.
var hmacPrefix = []byte{0x01, 0x16, 0x20, 0x17, 0x15, 0x05}

// Tags of the fields of records. They are encoded in DER.
const (
	tagRecord     = asn1.Tag(0x30)
	tagVersion    = asn1.Tag(0x80)
	tagHMAC       = asn1.Tag(0x81)
	tagHMACSalt   = asn1.Tag(0x82)
	tagContent    = asn1.Tag(0xa3)
	tagID         = asn1.Tag(0x81)
	tagFlags      = asn1.Tag(0x82)
	tagWrapped    = asn1.Tag(0x83)
	tagIterations = asn1.Tag(0x84)
	tagSalt       = asn1.Tag(0x85)
)

// record is a wrapped key.
type record struct {
	id         []byte
	wrapped    []byte
	iterations uint64 // of the derivation from a password; 0: it is not wrapped with a password
	salt       []byte
}

// field reads a field of a certain length; 0 is any.
func field(s *cryptobyte.String, tag asn1.Tag, length int) ([]byte, bool) {
	var out cryptobyte.String
	ok := s.ReadASN1(&out, tag) && (length == 0 || len(out) == length)
	return out, ok
}

var errRecord = fmt.Errorf("%w: a key record has another form", ErrDamaged)

// parseRecord verifies and reads a record, with the derivation from a password or without.
func parseRecord(b []byte, hasPassword bool) (*record, error) {
	s := cryptobyte.String(b)
	outer, ok := field(&s, tagRecord, 0)
	s = outer
	_, okVersion := field(&s, tagVersion, 0)
	sum, okSum := field(&s, tagHMAC, sha256.Size)
	salt, okSalt := field(&s, tagHMACSalt, flagsBytes)
	if !ok || !okVersion || !okSum || !okSalt {
		return nil, errRecord
	}
	key := sha256.Sum256(append(append([]byte{}, hmacPrefix...), salt...))
	mac := hmac.New(sha256.New, key[:])
	mac.Write(s)
	if !hmac.Equal(mac.Sum(nil), sum) {
		return nil, fmt.Errorf("%w: a key record has a wrong HMAC", ErrDamaged)
	}
	content, ok := field(&s, tagContent, 0)
	s = content
	_, okVersion = field(&s, tagVersion, 0)
	id, okID := field(&s, tagID, idBytes)
	_, okFlags := field(&s, tagFlags, flagsBytes)
	wrapped, okWrapped := field(&s, tagWrapped, wrappedBytes)
	if !ok || !okVersion || !okID || !okFlags || !okWrapped {
		return nil, errRecord
	}
	r := &record{id: id, wrapped: wrapped}
	if !hasPassword {
		return r, nil
	}
	iterations, okIterations := field(&s, tagIterations, 0)
	r.salt, okSalt = field(&s, tagSalt, saltBytes)
	if !okIterations || !okSalt || len(iterations) > 8 {
		return nil, errRecord
	}
	for _, v := range iterations {
		r.iterations = r.iterations<<8 | uint64(v)
	}
	if r.iterations == 0 || r.iterations > maxIterations {
		return nil, fmt.Errorf("a key record takes %d iterations, more than the limit of %d", r.iterations,
			maxIterations)
	}
	return r, nil
}

// Budget limits the iterations of all key derivations that share it. It is not safe for concurrent use.
type Budget struct{ left uint64 }

// NewBudget returns the budget of a scan: some minutes of one processor.
func NewBudget() *Budget { return &Budget{left: 256 << 20} }

var errBudget = errors.New("not all of its key records were tried: the key derivations of a scan would take too " +
	"much time")

func (b *Budget) spend(n uint64) error {
	if n > b.left {
		return errBudget
	}
	b.left -= n
	return nil
}

// VolumeKey returns the key of a volume. volumeKey is its entry TagVolumeKey, unlock are the entries TagUnlockRecords
// of its keybag, and keys are passwords and recovery keys, which are tried in this order. ErrWrongKey: none opens an
// entry. Once ctx has ended, no other key is tried.
func VolumeKey(ctx context.Context, volumeKey []byte, unlock, keys [][]byte, b *Budget) ([]byte, error) {
	volume, err := parseRecord(volumeKey, false)
	if err != nil {
		return nil, err
	}
	var notTried error
	for _, data := range unlock {
		r, err := parseRecord(data, true)
		if err != nil {
			notTried = err
			continue
		}
		for _, key := range keys {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err := b.spend(r.iterations); err != nil {
				return nil, err
			}
			derived, err := pbkdf2.Key(sha256.New, string(key), r.salt, int(r.iterations), KeyBytes)
			if err != nil {
				return nil, err
			}
			if wrapping := r.unwrap(derived); wrapping != nil {
				return volume.open(wrapping)
			}
		}
	}
	if notTried != nil {
		return nil, fmt.Errorf("%w; not tried: %w", ErrWrongKey, notTried)
	}
	return nil, ErrWrongKey
}

// open returns the key of a volume. One of FileVault that was converted from CoreStorage has only the first half; the
// second one is derived from it and from its ID.
func (r *record) open(wrapping []byte) ([]byte, error) {
	key := r.unwrap(wrapping)
	switch len(key) {
	case 0:
		return nil, fmt.Errorf("%w: the key of the volume is not wrapped with the key of its records", ErrDamaged)
	case KeyBytes:
		return key, nil
	}
	sum := sha256.Sum256(append(append([]byte{}, key...), r.id...))
	return append(key, sum[:KeyBytes-len(key)]...), nil
}

// unwrap returns the key of a record: of 32 bytes, or of 16 where it was converted from CoreStorage. The flags that say
// so differ between systems: what is right is verified, and so all are tried. Nil: it is wrapped with another key.
func (r *record) unwrap(key []byte) []byte {
	const half = KeyBytes / 2
	for _, wrapped := range [][]byte{r.wrapped, r.wrapped[:half+wrapUnit]} {
		for _, k := range [][]byte{key, key[:half]} { // AES-256, and AES-128
			if out := unwrap(k, wrapped); out != nil {
				return out
			}
		}
	}
	return nil
}

// unwrap returns a key that is wrapped with another one, by RFC 3394; nil if it is another one.
func unwrap(key, wrapped []byte) []byte {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil
	}
	const initial = 0xa6a6a6a6a6a6a6a6
	n := len(wrapped)/wrapUnit - 1
	a, out := binary.BigEndian.Uint64(wrapped), append([]byte{}, wrapped[wrapUnit:]...)
	var b [aes.BlockSize]byte
	for j := 5; j >= 0; j-- {
		for i := n - 1; i >= 0; i-- {
			part := out[i*wrapUnit:][:wrapUnit]
			binary.BigEndian.PutUint64(b[:], a^uint64(n*j+i+1))
			copy(b[wrapUnit:], part)
			block.Decrypt(b[:], b[:])
			a = binary.BigEndian.Uint64(b[:])
			copy(part, b[wrapUnit:])
		}
	}
	var got, want [wrapUnit]byte
	binary.BigEndian.PutUint64(got[:], a)
	binary.BigEndian.PutUint64(want[:], initial)
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return nil
	}
	return out
}
