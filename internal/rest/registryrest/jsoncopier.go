package registryrest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/farm"
)

// jsonCopy copies JSON text without its white space, and validates it on the way (RFC 8259). It keeps none of
// it in memory, however long a string is, unlike the decoders of the standard library.
type jsonCopy struct {
	in  *bufio.Reader
	out *bufio.Writer
	at  int64 // bytes read
}

// maxDepth is the maximum nesting depth of values.
const maxDepth = 100

var errDeep = farm.Errorf(farm.CodeInvalid, "The request body is nested more than %d levels deep",
	maxDepth)

// jsonFault is the error for text that is not JSON.
type jsonFault struct {
	problem string
	at      int64
}

func (f *jsonFault) Error() string { return fmt.Sprintf("%s (at byte %d)", f.problem, f.at) }

func (c *jsonCopy) fault(format string, args ...any) error {
	return &jsonFault{fmt.Sprintf(format, args...), c.at}
}

// next reads a byte, which must exist.
func (c *jsonCopy) next() (byte, error) {
	b, err := c.in.ReadByte()
	if errors.Is(err, io.EOF) {
		return 0, c.fault("unexpected end of JSON input")
	}
	c.at++
	return b, err
}

func (c *jsonCopy) back() {
	c.at--
	_ = c.in.UnreadByte() // of what was just read
}

// token returns the first byte after white space.
func (c *jsonCopy) token() (byte, error) {
	for {
		b, err := c.next()
		if err != nil || b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b, err
		}
	}
}

// want reads a byte after white space, which must be one of two.
func (c *jsonCopy) want(one, other byte) (byte, error) {
	b, err := c.token()
	if err == nil && b != one && b != other {
		err = c.fault("found %q, expected %q", b, one)
	}
	return b, err
}

// value copies a value with at most depth nested levels.
func (c *jsonCopy) value(depth int) error {
	b, err := c.token()
	switch {
	case err != nil:
		return err
	case b == '{':
		return c.list('}', depth)
	case b == '[':
		return c.list(']', depth)
	case b == '"':
		return c.text()
	case b == '-' || b >= '0' && b <= '9':
		return c.number(b)
	}
	for _, word := range []string{"true", "false", "null"} {
		if b == word[0] {
			return c.word(word)
		}
	}
	return c.fault("found %q, expected a value", b)
}

// list copies an object or array whose first byte was read; end is its last one.
func (c *jsonCopy) list(end byte, depth int) error {
	if depth == 0 {
		return errDeep
	}
	if err := c.out.WriteByte(end - 2); err != nil { // in ASCII each pair is two apart
		return err
	}
	b, err := c.token()
	for first := true; err == nil && (b != end || !first); first = false {
		if c.back(); end == '}' {
			err = c.key()
		}
		if err == nil {
			err = c.value(depth - 1)
		}
		if err == nil {
			b, err = c.want(end, ',')
		}
		if err != nil || b == end {
			break
		}
		if err = c.out.WriteByte(','); err == nil {
			b, err = c.token()
		}
	}
	if err != nil {
		return err
	}
	return c.out.WriteByte(end)
}

// key copies the name of a field and its colon.
func (c *jsonCopy) key() error {
	if _, err := c.want('"', '"'); err != nil {
		return err
	}
	if err := c.text(); err != nil {
		return err
	}
	if _, err := c.want(':', ':'); err != nil {
		return err
	}
	return c.out.WriteByte(':')
}

// text copies a string whose first quote was read.
func (c *jsonCopy) text() error {
	if err := c.out.WriteByte('"'); err != nil {
		return err
	}
	for {
		b, err := c.next()
		switch {
		case err != nil:
		case b == '\\':
			err = c.escape()
		case b < ' ':
			err = c.fault("found %q in a string", b)
		case b < utf8.RuneSelf:
			err = c.out.WriteByte(b)
		default:
			c.back()
			err = c.rune()
		}
		if err != nil || b == '"' {
			return err
		}
	}
}

// rune copies a character of several bytes.
func (c *jsonCopy) rune() error {
	r, n, err := c.in.ReadRune()
	if err != nil {
		return err
	}
	c.at += int64(n)
	if r == utf8.RuneError && n == 1 {
		return c.fault("found invalid UTF-8")
	}
	_, err = c.out.WriteRune(r)
	return err
}

// escape copies what a backslash begins.
func (c *jsonCopy) escape() error {
	b, err := c.next()
	if err != nil {
		return err
	}
	digits := 0
	switch b {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		digits = 4
	default:
		return c.fault("found %q behind a backslash", b)
	}
	if _, err := c.out.Write([]byte{'\\', b}); err != nil {
		return err
	}
	for range digits {
		if b, err = c.next(); err != nil {
			return err
		}
		if hex := b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'f'; !hex {
			return c.fault("found %q, expected a hexadecimal digit", b)
		}
		if err := c.out.WriteByte(b); err != nil {
			return err
		}
	}
	return nil
}

// word copies a literal whose first byte was read.
func (c *jsonCopy) word(word string) error {
	for i := 1; i < len(word); i++ {
		if b, err := c.next(); err != nil {
			return err
		} else if b != word[i] {
			return c.fault("found %q, expected %s", b, word)
		}
	}
	_, err := c.out.WriteString(word)
	return err
}

// number copies a number whose first byte was read.
func (c *jsonCopy) number(b byte) error {
	if b == '-' {
		if err := c.out.WriteByte(b); err != nil {
			return err
		}
		var err error
		if b, err = c.next(); err != nil {
			return err
		}
	}
	c.back()
	if b == '0' {
		_, _ = c.next()
		if err := c.out.WriteByte(b); err != nil {
			return err
		}
	} else if err := c.digits(); err != nil {
		return err
	}
	if found, err := c.optional("."); err != nil {
		return err
	} else if found {
		if err := c.digits(); err != nil {
			return err
		}
	}
	found, err := c.optional("eE")
	if err != nil || !found {
		return err
	}
	if _, err := c.optional("+-"); err != nil {
		return err
	}
	return c.digits()
}

// optional copies the next byte if it is among the given ones.
func (c *jsonCopy) optional(among string) (bool, error) {
	next, err := c.in.Peek(1)
	if err != nil { // the next read returns the error again
		return false, nil //nolint:nilerr // the next read returns the error
	}
	for i := range len(among) {
		if next[0] == among[i] {
			_, _ = c.next()
			return true, c.out.WriteByte(among[i])
		}
	}
	return false, nil
}

// digits copies one digit or more.
func (c *jsonCopy) digits() error {
	for n := 0; ; n++ {
		found, err := c.optional("0123456789")
		if err != nil {
			return err
		}
		if found {
			continue
		}
		if n == 0 {
			return c.fault("expected a digit")
		}
		return nil
	}
}
