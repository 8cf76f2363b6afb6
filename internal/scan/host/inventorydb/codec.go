package inventorydb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrDamaged is the error of a file whose content was never written by this package.
var ErrDamaged = errors.New("the package inventory is damaged")

// A number identifies a package or a file in a key: five bytes, big endian, so that they sort.
const (
	numberSize = 5
	maxNumber  = 1<<(8*numberSize) - 1
)

func appendNumber(b []byte, n uint64) []byte {
	var w [8]byte
	binary.BigEndian.PutUint64(w[:], n)
	return append(b, w[8-numberSize:]...)
}

func numberKey(n uint64) []byte { return appendNumber(nil, n) }

// numberAt reads the number at an offset of a key.
func numberAt(key []byte, at int) (uint64, error) {
	if len(key) < at+numberSize {
		return 0, fmt.Errorf("%w: key of %d bytes", ErrDamaged, len(key))
	}
	var w [8]byte
	copy(w[8-numberSize:], key[at:at+numberSize])
	return binary.BigEndian.Uint64(w[:]), nil
}

// Bounds of what a record may hold.
const (
	maxStringBytes = 64 << 10
	maxListItems   = 1 << 20
)

// recordReader decodes a record. After the first error all its methods return zero values.
type recordReader struct {
	data []byte
	err  error
}

func (r *recordReader) setError(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrDamaged, what)
	}
	r.data = nil
}

func (r *recordReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 {
		r.setError("a number is cut off")
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *recordReader) uint64() uint64 {
	if len(r.data) < 8 {
		r.setError("a number is cut off")
		return 0
	}
	v := binary.LittleEndian.Uint64(r.data)
	r.data = r.data[8:]
	return v
}

func (r *recordReader) float() float64 {
	f := math.Float64frombits(r.uint64())
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.setError("a number is none")
		return 0
	}
	return f
}

func (r *recordReader) time() time.Time {
	n := int64(r.uint64())
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func (r *recordReader) str() string {
	n := r.uvarint()
	if n > uint64(len(r.data)) || n > maxStringBytes {
		r.setError("a text is cut off")
		return ""
	}
	s := string(r.data[:n])
	r.data = r.data[n:]
	return s
}

func (r *recordReader) strs() []string {
	n := r.uvarint()
	if n > uint64(len(r.data)) || n > maxListItems {
		r.setError("a list is cut off")
		return nil
	}
	var out []string
	for range n {
		out = append(out, r.str())
	}
	return out
}

// finish returns the first error, or an error when bytes are left.
func (r *recordReader) finish() error {
	if r.err == nil && len(r.data) > 0 {
		r.setError(fmt.Sprintf("%d bytes follow a record", len(r.data)))
	}
	return r.err
}

func appendUint64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

func appendFloat(b []byte, v float64) []byte { return appendUint64(b, math.Float64bits(v)) }

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return appendUint64(b, 0)
	}
	return appendUint64(b, uint64(t.UnixNano()))
}

// appendString cuts text that is too long, which no stored text should be.
func appendString(b []byte, s string) []byte {
	s = s[:min(len(s), maxStringBytes)]
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendStrings(b []byte, list []string) []byte {
	list = list[:min(len(list), maxListItems)]
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}
