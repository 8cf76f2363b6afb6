package vulndb

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	stringLimit = 64 << 10 // bytes of one string in a record
	answerCost  = 48 << 20 // bytes of memory that the result of one query may cost
)

// errTooLarge reports that the result of one query would take too much memory.
var errTooLarge = errors.New("its records unfold to more than 48 MB")

// encoder appends the parts of a record. Its zero value is ready.
type encoder struct{ b []byte }

func (e *encoder) uint(n uint64) { e.b = binary.AppendUvarint(e.b, n) }

func (e *encoder) byte(b byte) { e.b = append(e.b, b) }

func (e *encoder) text(s string) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) texts(list []string) {
	e.uint(uint64(len(list)))
	for _, s := range list {
		e.text(s)
	}
}

// follow appends a string by its difference from the one before it.
func (e *encoder) follow(before, s string) {
	n := shared(before, s)
	e.uint(uint64(n))
	e.text(s[n:])
}

func shared(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// decoder reads the parts of a record. After its first error it returns zero values. Its results
// are counted against cost, so that a few hostile bytes cannot expand without limit.
type decoder struct {
	b    []byte
	cost *int
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
	}
}

// spend counts n bytes of memory.
func (d *decoder) spend(n int) bool {
	*d.cost -= n
	if *d.cost < 0 && d.err == nil {
		d.err = fmt.Errorf("%w: %w", ErrDamaged, errTooLarge)
	}
	return d.err == nil
}

func (d *decoder) uint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("a number of a record is cut off")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if d.err != nil || len(d.b) == 0 {
		d.fail("a record is cut off")
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) text() string {
	n := d.uint()
	if d.err != nil || n == 0 {
		return ""
	}
	if n > uint64(len(d.b)) || n > stringLimit {
		d.fail("a text of a record has %d bytes", n)
		return ""
	}
	if !d.spend(int(n)) {
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// count returns how many items of size bytes of memory follow. Each takes at least one byte of the
// record.
func (d *decoder) count(size int) int {
	n := d.uint()
	if d.err == nil && n > uint64(len(d.b)) {
		d.fail("a list of a record has %d items", n)
	}
	if d.err != nil || !d.spend(int(n)*size) {
		return 0
	}
	return int(n)
}

func (d *decoder) texts() []string {
	n := d.count(16)
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.text())
	}
	return list
}

// follow reads a string that encoder.follow appended.
func (d *decoder) follow(before string) string {
	n := d.uint()
	if n > uint64(len(before)) {
		d.fail("a text of a record shares %d bytes of %d", n, len(before))
		return ""
	}
	rest := d.text()
	if len(rest)+int(n) > stringLimit || !d.spend(int(n)) {
		d.fail("a text of a record is too long")
		return ""
	}
	return before[:n] + rest
}
