package vulndb

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	maxStringBytes = 64 << 10 // bytes of one string in a record
	maxResultBytes = 48 << 20 // bytes of memory that the result of one query may cost
)

// errTooLarge reports that the result of one query would take too much memory.
var errTooLarge = errors.New("the records of a query decompress to more than 48 MiB")

// encoder appends the parts of a record. Its zero value is ready.
type encoder struct{ buf []byte }

func (e *encoder) uint(n uint64) { e.buf = binary.AppendUvarint(e.buf, n) }

func (e *encoder) byte(b byte) { e.buf = append(e.buf, b) }

func (e *encoder) str(s string) {
	e.uint(uint64(len(s)))
	e.buf = append(e.buf, s...)
}

func (e *encoder) strs(list []string) {
	e.uint(uint64(len(list)))
	for _, s := range list {
		e.str(s)
	}
}

// deltaString appends a string by its difference from the one before it.
func (e *encoder) deltaString(before, s string) {
	n := commonPrefixLen(before, s)
	e.uint(uint64(n))
	e.str(s[n:])
}

func commonPrefixLen(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// decoder reads the parts of a record. After its first error it returns zero values. Its results
// are counted against memoryBudget, so that a few hostile bytes cannot expand without limit.
type decoder struct {
	data         []byte
	memoryBudget *int
	err          error
}

func (d *decoder) setError(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
	}
}

// reserve counts n bytes of memory.
func (d *decoder) reserve(n int) bool {
	*d.memoryBudget -= n
	if *d.memoryBudget < 0 && d.err == nil {
		d.err = fmt.Errorf("%w: %w", ErrDamaged, errTooLarge)
	}
	return d.err == nil
}

func (d *decoder) uint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.data)
	if n <= 0 {
		d.setError("a number of a record is cut off")
		return 0
	}
	d.data = d.data[n:]
	return v
}

func (d *decoder) byte() byte {
	if d.err != nil || len(d.data) == 0 {
		d.setError("a record is cut off")
		return 0
	}
	c := d.data[0]
	d.data = d.data[1:]
	return c
}

func (d *decoder) str() string {
	n := d.uint()
	if d.err != nil || n == 0 {
		return ""
	}
	if n > uint64(len(d.data)) || n > maxStringBytes {
		d.setError("a text of a record has %d bytes", n)
		return ""
	}
	if !d.reserve(int(n)) {
		return ""
	}
	s := string(d.data[:n])
	d.data = d.data[n:]
	return s
}

// itemCount returns how many items of size bytes of memory follow. Each takes at least one byte of the
// record.
func (d *decoder) itemCount(size int) int {
	n := d.uint()
	if d.err == nil && n > uint64(len(d.data)) {
		d.setError("a list of a record has %d items", n)
	}
	if d.err != nil || !d.reserve(int(n)*size) {
		return 0
	}
	return int(n)
}

func (d *decoder) strs() []string {
	n := d.itemCount(16)
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.str())
	}
	return list
}

// deltaString reads a string that encoder.deltaString appended.
func (d *decoder) deltaString(before string) string {
	n := d.uint()
	if n > uint64(len(before)) {
		d.setError("a text of a record shares %d bytes of %d", n, len(before))
		return ""
	}
	rest := d.str()
	if len(rest)+int(n) > maxStringBytes || !d.reserve(int(n)) {
		d.setError("a text of a record is too long")
		return ""
	}
	return before[:n] + rest
}
