package apfs

import (
	"hash/crc32"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// normalizeName returns the form of a name for comparisons: decomposed, and folded where case is ignored.
func normalizeName(name string, folded bool) string {
	if isASCII(name) {
		if !folded {
			return name
		}
		return lowerASCII(name)
	}
	name = norm.NFD.String(name)
	if folded {
		name = norm.NFD.String(cases.Fold().String(name))
	}
	return name
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// lowerASCII folds ASCII.
func lowerASCII(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for j, c := range b[i:] {
				if 'A' <= c && c <= 'Z' {
					b[i+j] = c + 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// nameHash returns the 22 bits that directories are sorted by: CRC-32C without the last complement
// over the characters of a normalized name, each as four bytes.
func nameHash(name string) uint64 {
	b := make([]byte, 0, 4*len(name))
	for _, r := range name {
		b = le.AppendUint32(b, uint32(r))
	}
	return uint64(^crc32.Checksum(b, castagnoli) & (1<<22 - 1))
}
