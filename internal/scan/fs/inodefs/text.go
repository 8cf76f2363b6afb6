package inodefs

import (
	"bytes"
	"strings"
)

// CString returns the characters before the first zero, without terminal control characters.
func CString(b []byte) string {
	if k := bytes.IndexByte(b, 0); k >= 0 {
		b = b[:k]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), ""))
}
