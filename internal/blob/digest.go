package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Digest names a layer: the sha256 of its index. The zero Digest means none.
type Digest [sha256.Size]byte

// ParseDigest reads the 64 lower-case hex digits of a digest.
func ParseDigest(s string) (Digest, error) {
	var r Digest
	if len(s) != 2*len(r) {
		return r, fmt.Errorf("%q is not a layer digest (SHA-256)", s)
	}
	for i := range r {
		high, low := hexDigit(s[2*i]), hexDigit(s[2*i+1])
		if high|low > 15 {
			return Digest{}, fmt.Errorf("%q is not a layer digest (SHA-256)", s)
		}
		r[i] = high<<4 | low
	}
	return r, nil
}

// hexDigit returns the value of a lower-case digit; 255 for all else. A start reads millions of them.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

// String returns the 64 hex digits of the digest.
func (r Digest) String() string { return hex.EncodeToString(r[:]) }

// IsZero reports whether the digest names no layer.
func (r Digest) IsZero() bool { return r == Digest{} }
