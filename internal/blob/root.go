package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Root names a layer: the sha256 of its index. The zero Root means none.
type Root [sha256.Size]byte

// ParseRoot reads the 64 lower-case hex digits of a root.
func ParseRoot(s string) (Root, error) {
	var r Root
	if len(s) != 2*len(r) {
		return r, fmt.Errorf("%q is not the name of a layer", s)
	}
	if _, err := hex.Decode(r[:], []byte(s)); err != nil || r.String() != s {
		return Root{}, fmt.Errorf("%q is not the name of a layer", s)
	}
	return r, nil
}

// String gives the root's 64 hex digits.
func (r Root) String() string { return hex.EncodeToString(r[:]) }

// IsZero tells the root that names no layer.
func (r Root) IsZero() bool { return r == Root{} }
