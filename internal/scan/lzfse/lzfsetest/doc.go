// Package lzfsetest compresses with LZVN, LZFSE and LZBITMAP for tests. It was written from the
// formats and shares no code with the decoders that it tests.
//
// It does not compress well, and is for tests only.
//
// Invariant: the same bytes are always compressed to the same bytes.
package lzfsetest

import "encoding/binary"

var le = binary.LittleEndian

// step is some literals, and then a match; the last one of some bytes may have none.
type step struct {
	literals []byte
	match    int
	distance int
}

// parse splits bytes into steps. Matches have at least four bytes and at most most; their distance
// is at most far.
func parse(b []byte, most, far int) []step {
	var out []step
	seen := map[[4]byte]int{}
	start := 0
	for i := 0; i < len(b); {
		if i+4 > len(b) {
			break
		}
		key := [4]byte(b[i : i+4])
		at, ok := seen[key]
		seen[key] = i
		if !ok || i-at > far {
			i++
			continue
		}
		n := 4
		for n < most && i+n < len(b) && b[at+n] == b[i+n] {
			n++
		}
		out = append(out, step{literals: b[start:i], match: n, distance: i - at})
		i += n
		start = i
	}
	if start < len(b) {
		out = append(out, step{literals: b[start:]})
	}
	return out
}
