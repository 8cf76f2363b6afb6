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

// maxClockSkew is how far the clocks of two replicas may be apart.
const maxClockSkew = time.Minute

// Signer signs with a ring that can be replaced while it is used.
type Signer struct{ ring atomic.Pointer[KeyRing] }

// NewSigner signs with a ring, which has a key.
func NewSigner(r KeyRing) *Signer {
	s := &Signer{}
	s.ReplaceRing(r)
	return s
}

// ReplaceRing sets the current ring. Signatures by keys that the ring still has stay valid.
func (s *Signer) ReplaceRing(r KeyRing) { s.ring.Store(&r) }

// What can be wrong with a sealed text.
var (
	ErrSignedTextForm    = errors.New("the signed text is malformed or incomplete")
	ErrSignedTextForeign = errors.New("the signature is invalid")
	ErrSignedTextExpired = errors.New("the signed text has expired")
)

const (
	macSize         = sha256.Size
	signedHeadBytes = 4 + 8 // version of the key, time in milliseconds
	minSignedBytes  = signedHeadBytes + macSize
	maxSignedText   = 4096 // bytes of text
)

// Sign returns a URL-safe text that contains the payload in clear, the current time, and a
// signature over both, the purpose and the values to which it is bound.
func (s *Signer) Sign(p Purpose, payload []byte, bound ...string) string {
	now := time.Now()
	key := s.ring.Load().signingKey(now)
	out := make([]byte, 0, minSignedBytes+len(payload))
	out = binary.BigEndian.AppendUint32(out, key.version)
	out = binary.BigEndian.AppendUint64(out, uint64(now.UnixMilli()))
	out = append(out, payload...)
	mac := key.sign(p, out, bound...)
	return base64.RawURLEncoding.EncodeToString(append(out, mac[:]...))
}

// Verify returns the payload of a text that Seal made for the same purpose, bound to the same
// texts, no longer than ttl ago.
func (s *Signer) Verify(p Purpose, text string, ttl time.Duration, bound ...string) ([]byte, error) {
	if len(text) > maxSignedText {
		return nil, ErrSignedTextForm
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < minSignedBytes {
		return nil, ErrSignedTextForm
	}
	key := s.ring.Load().findKey(binary.BigEndian.Uint32(raw))
	if key == nil {
		return nil, ErrSignedTextForeign
	}
	signed, sum := raw[:len(raw)-macSize], raw[len(raw)-macSize:]
	if mac := key.sign(p, signed, bound...); !hmac.Equal(mac[:], sum) {
		return nil, ErrSignedTextForeign
	}
	age := time.Since(time.UnixMilli(int64(binary.BigEndian.Uint64(raw[4:]))))
	if age > ttl || age < -maxClockSkew {
		return nil, ErrSignedTextExpired
	}
	return signed[signedHeadBytes:], nil
}

// signedAt returns when a text was signed that Verify has accepted.
func signedAt(text string) time.Time {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < minSignedBytes {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(raw[4:])))
}

// sign signs a purpose, a content and the values to which that is bound. Each part is prefixed by
// its length, so that no two lists of parts produce the same text.
func (k *signingKey) sign(p Purpose, content []byte, bound ...string) (sum [macSize]byte) {
	msg := make([]byte, 0, 320)
	msg = appendPart(msg, p)
	msg = appendPart(msg, content)
	for _, b := range bound {
		msg = appendPart(msg, b)
	}
	h := hmac.New(sha256.New, k.secret[:])
	h.Write(msg)
	h.Sum(sum[:0])
	return sum
}

func appendPart[T ~string | ~[]byte](msg []byte, p T) []byte {
	msg = binary.BigEndian.AppendUint32(msg, uint32(len(p)))
	return append(msg, p...)
}
