package registryrest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/farm"
)

// jsonCopier copies JSON text without its white space, and validates it on the way (RFC 8259). It keeps none of
// it in memory, however long a string is, unlike the decoders of the standard library.
type jsonCopier struct {
	in  *bufio.Reader
	out *bufio.Writer
	pos int64 // bytes read
}

// maxJSONDepth is the maximum nesting depth of values.
const maxJSONDepth = 100

var errTooDeep = farm.Errorf(farm.CodeInvalid, "The request body is nested more than %d levels deep",
	maxJSONDepth)

// jsonError is the error for text that is not JSON.
type jsonError struct {
	problem string
	pos     int64
}

func (f *jsonError) Error() string { return fmt.Sprintf("%s (at byte %d)", f.problem, f.pos) }

func (c *jsonCopier) syntaxError(format string, args ...any) error {
	return &jsonError{fmt.Sprintf(format, args...), c.pos}
}

// readByte reads a byte, which must exist.
func (c *jsonCopier) readByte() (byte, error) {
	b, err := c.in.ReadByte()
	if errors.Is(err, io.EOF) {
		return 0, c.syntaxError("unexpected end of JSON input")
	}
	c.pos++
	return b, err
}

func (c *jsonCopier) unreadByte() {
	c.pos--
	_ = c.in.UnreadByte() // of what was just read
}

// nextToken returns the first byte after white space.
func (c *jsonCopier) nextToken() (byte, error) {
	for {
		b, err := c.readByte()
		if err != nil || b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b, err
		}
	}
}

// expect reads a byte after white space, which must be one of two.
func (c *jsonCopier) expect(one, other byte) (byte, error) {
	b, err := c.nextToken()
	if err == nil && b != one && b != other {
		err = c.syntaxError("found %q, expected %q", b, one)
	}
	return b, err
}

// copyValue copies a value with at most depth nested levels.
func (c *jsonCopier) copyValue(depth int) error {
	b, err := c.nextToken()
	switch {
	case err != nil:
		return err
	case b == '{':
		return c.copyList('}', depth)
	case b == '[':
		return c.copyList(']', depth)
	case b == '"':
		return c.copyString()
	case b == '-' || b >= '0' && b <= '9':
		return c.copyNumber(b)
	}
	for _, word := range []string{"true", "false", "null"} {
		if b == word[0] {
			return c.copyLiteral(word)
		}
	}
	return c.syntaxError("found %q, expected a value", b)
}

// copyList copies an object or array whose first byte was read; end is its last one.
func (c *jsonCopier) copyList(end byte, depth int) error {
	if depth == 0 {
		return errTooDeep
	}
	if err := c.out.WriteByte(end - 2); err != nil { // in ASCII each pair is two apart
		return err
	}
	b, err := c.nextToken()
	for first := true; err == nil && (b != end || !first); first = false {
		if c.unreadByte(); end == '}' {
			err = c.copyKey()
		}
		if err == nil {
			err = c.copyValue(depth - 1)
		}
		if err == nil {
			b, err = c.expect(end, ',')
		}
		if err != nil || b == end {
			break
		}
		if err = c.out.WriteByte(','); err == nil {
			b, err = c.nextToken()
		}
	}
	if err != nil {
		return err
	}
	return c.out.WriteByte(end)
}

// copyKey copies the name of a field and its colon.
func (c *jsonCopier) copyKey() error {
	if _, err := c.expect('"', '"'); err != nil {
		return err
	}
	if err := c.copyString(); err != nil {
		return err
	}
	if _, err := c.expect(':', ':'); err != nil {
		return err
	}
	return c.out.WriteByte(':')
}

// copyString copies a string whose first quote was read.
func (c *jsonCopier) copyString() error {
	if err := c.out.WriteByte('"'); err != nil {
		return err
	}
	for {
		b, err := c.readByte()
		switch {
		case err != nil:
		case b == '\\':
			err = c.copyEscape()
		case b < ' ':
			err = c.syntaxError("found %q in a string", b)
		case b < utf8.RuneSelf:
			err = c.out.WriteByte(b)
		default:
			c.unreadByte()
			err = c.copyRune()
		}
		if err != nil || b == '"' {
			return err
		}
	}
}

// copyRune copies a character of several bytes.
func (c *jsonCopier) copyRune() error {
	r, n, err := c.in.ReadRune()
	if err != nil {
		return err
	}
	c.pos += int64(n)
	if r == utf8.RuneError && n == 1 {
		return c.syntaxError("found invalid UTF-8")
	}
	_, err = c.out.WriteRune(r)
	return err
}

// copyEscape copies what a backslash begins.
func (c *jsonCopier) copyEscape() error {
	b, err := c.readByte()
	if err != nil {
		return err
	}
	digits := 0
	switch b {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		digits = 4
	default:
		return c.syntaxError("found %q behind a backslash", b)
	}
	if _, err := c.out.Write([]byte{'\\', b}); err != nil {
		return err
	}
	for range digits {
		if b, err = c.readByte(); err != nil {
			return err
		}
		if hex := b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'f'; !hex {
			return c.syntaxError("found %q, expected a hexadecimal digit", b)
		}
		if err := c.out.WriteByte(b); err != nil {
			return err
		}
	}
	return nil
}

// copyLiteral copies a literal whose first byte was read.
func (c *jsonCopier) copyLiteral(word string) error {
	for i := 1; i < len(word); i++ {
		if b, err := c.readByte(); err != nil {
			return err
		} else if b != word[i] {
			return c.syntaxError("found %q, expected %s", b, word)
		}
	}
	_, err := c.out.WriteString(word)
	return err
}

// copyNumber copies a number whose first byte was read.
func (c *jsonCopier) copyNumber(b byte) error {
	if b == '-' {
		if err := c.out.WriteByte(b); err != nil {
			return err
		}
		var err error
		if b, err = c.readByte(); err != nil {
			return err
		}
	}
	c.unreadByte()
	if b == '0' {
		_, _ = c.readByte()
		if err := c.out.WriteByte(b); err != nil {
			return err
		}
	} else if err := c.copyDigits(); err != nil {
		return err
	}
	if found, err := c.copyOptional("."); err != nil {
		return err
	} else if found {
		if err := c.copyDigits(); err != nil {
			return err
		}
	}
	found, err := c.copyOptional("eE")
	if err != nil || !found {
		return err
	}
	if _, err := c.copyOptional("+-"); err != nil {
		return err
	}
	return c.copyDigits()
}

// copyOptional copies the next byte if it is among the given ones.
func (c *jsonCopier) copyOptional(among string) (bool, error) {
	next, err := c.in.Peek(1)
	if err != nil { // the next read returns the error again
		return false, nil //nolint:nilerr // the next read returns the error
	}
	for i := range len(among) {
		if next[0] == among[i] {
			_, _ = c.readByte()
			return true, c.out.WriteByte(among[i])
		}
	}
	return false, nil
}

// copyDigits copies one digit or more.
func (c *jsonCopier) copyDigits() error {
	for n := 0; ; n++ {
		found, err := c.copyOptional("0123456789")
		if err != nil {
			return err
		}
		if found {
			continue
		}
		if n == 0 {
			return c.syntaxError("expected a digit")
		}
		return nil
	}
}
