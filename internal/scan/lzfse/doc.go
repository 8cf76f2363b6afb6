// Package lzfse decompresses what Apple's systems compress files with: LZVN, LZFSE and
// LZBITMAP. Sources of the formats: Apple's reference implementation of the first two,
// and the observations of the libzbitmap project of the third.
//
// It does not compress, and reads no streams: a block goes from one slice into another.
//
// Invariant: whatever the compressed bytes say, decoding writes only to the given slice,
// reads only the other one, and takes time in proportion to both.
package lzfse

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrDamaged is wrapped by errors that say that compressed data contradicts itself, or
// decompresses to more than was expected.
var ErrDamaged = errors.New("the compressed data is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

var le = binary.LittleEndian

// output is the slice that is decoded into: n bytes of it are there.
type output struct {
	b []byte
	n int
}

// literal appends bytes.
func (o *output) literal(src []byte) error {
	if len(src) > len(o.b)-o.n {
		return damaged("it has more than %d bytes", len(o.b))
	}
	o.n += copy(o.b[o.n:], src)
	return nil
}

// match repeats bytes that lie some way back; they may overlap with what is written.
func (o *output) match(length, distance int) error {
	if distance <= 0 || distance > o.n {
		return damaged("byte %d repeats what is %d bytes before", o.n, distance)
	}
	if length > len(o.b)-o.n {
		return damaged("it has more than %d bytes", len(o.b))
	}
	from, end := o.n-distance, o.n+length
	for o.n < end {
		// What was just written can be copied too, so each turn copies more.
		o.n += copy(o.b[o.n:end], o.b[from:o.n])
	}
	return nil
}
