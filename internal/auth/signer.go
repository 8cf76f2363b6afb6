package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"
)

// Purpose separates signatures: one for a purpose is not valid for another.
type Purpose string

// skew is how far the clocks of two replicas may be apart.
const skew = time.Minute

// Signer signs with a ring that can be replaced while it is used.
type Signer struct{ ring atomic.Pointer[KeyRing] }

// NewSigner signs with a ring, which has a key.
func NewSigner(r KeyRing) *Signer {
	s := &Signer{}
	s.Replace(r)
	return s
}

// Replace sets the current ring. Signatures by keys that the ring still has stay valid.
func (s *Signer) Replace(r KeyRing) { s.ring.Store(&r) }

// What can be wrong with a sealed text.
var (
	ErrSealForm    = errors.New("the signed text is malformed or incomplete")
	ErrSealForeign = errors.New("the signature is invalid")
	ErrSealExpired = errors.New("the signed text has expired")
)

const (
	macSize  = sha256.Size
	sealHead = 4 + 8 // version of the key, time in milliseconds
	sealSize = sealHead + macSize
	maxSeal  = 4096 // bytes of text
)

// Seal returns a URL-safe text that contains the payload in clear, the current time, and a
// signature over both, the purpose and the values to which it is bound.
func (s *Signer) Seal(p Purpose, payload []byte, bound ...string) string {
	now := time.Now()
	key := s.ring.Load().signing(now)
	out := make([]byte, 0, sealSize+len(payload))
	out = binary.BigEndian.AppendUint32(out, key.version)
	out = binary.BigEndian.AppendUint64(out, uint64(now.UnixMilli()))
	out = append(out, payload...)
	mac := key.mac(p, out, bound...)
	return base64.RawURLEncoding.EncodeToString(append(out, mac[:]...))
}

// Unseal returns the payload of a text that Seal made for the same purpose, bound to the same
// texts, no longer than ttl ago.
func (s *Signer) Unseal(p Purpose, text string, ttl time.Duration, bound ...string) ([]byte, error) {
	if len(text) > maxSeal {
		return nil, ErrSealForm
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < sealSize {
		return nil, ErrSealForm
	}
	key := s.ring.Load().find(binary.BigEndian.Uint32(raw))
	if key == nil {
		return nil, ErrSealForeign
	}
	signed, sum := raw[:len(raw)-macSize], raw[len(raw)-macSize:]
	if mac := key.mac(p, signed, bound...); !hmac.Equal(mac[:], sum) {
		return nil, ErrSealForeign
	}
	age := time.Since(time.UnixMilli(int64(binary.BigEndian.Uint64(raw[4:]))))
	if age > ttl || age < -skew {
		return nil, ErrSealExpired
	}
	return signed[sealHead:], nil
}

// mac signs a purpose, a content and the values to which that is bound. Each part is prefixed by
// its length, so that no two lists of parts produce the same text.
func (k *signingKey) mac(p Purpose, content []byte, bound ...string) (sum [macSize]byte) {
	msg := make([]byte, 0, 320)
	msg = part(msg, p)
	msg = part(msg, content)
	for _, b := range bound {
		msg = part(msg, b)
	}
	h := hmac.New(sha256.New, k.secret[:])
	h.Write(msg)
	h.Sum(sum[:0])
	return sum
}

func part[T ~string | ~[]byte](msg []byte, p T) []byte {
	msg = binary.BigEndian.AppendUint32(msg, uint32(len(p)))
	return append(msg, p...)
}
