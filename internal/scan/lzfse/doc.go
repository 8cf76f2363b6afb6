// Package lzfse decompresses the formats of compressed files on Apple's systems: LZVN, LZFSE and
// LZBITMAP. Sources of the formats: Apple's reference implementation of the first two, and the
// observations of the libzbitmap project of the third.
//
// It does not compress, and reads no streams: a block goes from one slice into another.
//
// Invariant: whatever the compressed bytes are, decoding writes only to the given slice, reads only
// the other one, and takes time in proportion to both.
package lzfse

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrDamaged is wrapped by the errors for compressed data that contradicts itself, or decompresses
// to more than expected.
var ErrDamaged = errors.New("the compressed data is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

var littleEndian = binary.LittleEndian

// output is the destination slice: n bytes of it are written.
type output struct {
	data    []byte
	written int
}

// appendLiterals appends bytes.
func (o *output) appendLiterals(src []byte) error {
	if len(src) > len(o.data)-o.written {
		return damaged("it has more than %d bytes", len(o.data))
	}
	o.written += copy(o.data[o.written:], src)
	return nil
}

// copyMatch repeats bytes at a distance before; they may overlap with those being written.
func (o *output) copyMatch(length, distance int) error {
	if distance <= 0 || distance > o.written {
		return damaged("byte %d repeats what is %d bytes before", o.written, distance)
	}
	if length > len(o.data)-o.written {
		return damaged("it has more than %d bytes", len(o.data))
	}
	from, end := o.written-distance, o.written+length
	for o.written < end {
		// The bytes just written can be copied too, so each iteration copies more.
		o.written += copy(o.data[o.written:end], o.data[from:o.written])
	}
	return nil
}
