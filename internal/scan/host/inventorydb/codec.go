package inventorydb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrDamaged is the error of a file whose content was never written by this package.
var ErrDamaged = errors.New("the inventory is damaged")

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

func keyOf(n uint64) []byte { return appendNumber(nil, n) }

// numberAt reads the number at an offset of a key.
func numberAt(key []byte, at int) (uint64, error) {
	if len(key) < at+numberSize {
		return 0, fmt.Errorf("%w: a key of %d bytes", ErrDamaged, len(key))
	}
	var w [8]byte
	copy(w[8-numberSize:], key[at:at+numberSize])
	return binary.BigEndian.Uint64(w[:]), nil
}

// Bounds of what a record may hold.
const (
	maxText = 64 << 10
	maxList = 1 << 20
)

// reader decodes a record. After the first error all its methods return zero values.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrDamaged, what)
	}
	r.b = nil
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("a number is cut off")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) fixed() uint64 {
	if len(r.b) < 8 {
		r.fail("a number is cut off")
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) float() float64 {
	f := math.Float64frombits(r.fixed())
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.fail("a number is none")
		return 0
	}
	return f
}

func (r *reader) time() time.Time {
	n := int64(r.fixed())
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) || n > maxText {
		r.fail("a text is cut off")
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) texts() []string {
	n := r.uvarint()
	if n > uint64(len(r.b)) || n > maxList {
		r.fail("a list is cut off")
		return nil
	}
	var out []string
	for range n {
		out = append(out, r.text())
	}
	return out
}

// end returns the first error, or an error when bytes are left.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail(fmt.Sprintf("%d bytes follow a record", len(r.b)))
	}
	return r.err
}

func appendFixed(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

func appendFloat(b []byte, v float64) []byte { return appendFixed(b, math.Float64bits(v)) }

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return appendFixed(b, 0)
	}
	return appendFixed(b, uint64(t.UnixNano()))
}

// appendText cuts text that is too long, which no stored text should be.
func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), maxText)]
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendTexts(b []byte, list []string) []byte {
	list = list[:min(len(list), maxList)]
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}
