// Package tomllimit checks untrusted TOML documents before they are parsed.
//
// It is not a parser: it only measures how deep a document is nested. The parser is recursive, and
// unlimited recursion crashes the program.
//
// Invariant: a document that passes has no more than a bounded number of levels and values.
package tomllimit

import (
	"bytes"
	"fmt"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// MaxDepth limits the nesting of arrays and tables, and the number of parts of a key.
const MaxDepth = 64

// MaxValues limits the values and keys of a document: in memory each takes about 600 bytes. Lock files of the
// largest projects reach 20 % of it.
const MaxValues = 500_000

// ErrTooDeep reports a document nested deeper than any benign one.
var ErrTooDeep = fmt.Errorf("the TOML file is nested more than %d levels deep", MaxDepth)

// Check checks a document.
func Check(data []byte) error {
	open, dots := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '[', '{':
			open, dots = open+1, 0
		case ']', '}':
			open, dots = max(open-1, 0), 0
		case '=', ',', '\n':
			dots = 0
		case '.':
			dots++
		case '#':
			i = lineEnd(data, i) - 1
		case '"', '\'':
			i = stringEnd(data, i) - 1
		}
		if open > MaxDepth || dots > MaxDepth {
			return ErrTooDeep
		}
	}
	values := 0
	for _, mark := range []string{"[", "{", "=", ","} {
		values += bytes.Count(data, []byte(mark))
	}
	if values > MaxValues {
		return fmt.Errorf("%w: it has %d values, which is too many", catalog.ErrTooLarge, values)
	}
	return nil
}

// lineEnd returns the offset of the line's end.
func lineEnd(data []byte, at int) int {
	if n := bytes.IndexByte(data[at:], '\n'); n >= 0 {
		return at + n
	}
	return len(data)
}

// stringEnd returns the offset after a text. A text of a single line that does not end there is an
// error to the parser, which then stops.
func stringEnd(data []byte, at int) int {
	quote := data[at]
	long := bytes.Repeat([]byte{quote}, 3)
	lines := bytes.HasPrefix(data[at:], long)
	if lines {
		at += 2
	}
	for at++; at < len(data); at++ {
		switch {
		case data[at] == '\\' && quote == '"':
			at++
		case data[at] == '\n' && !lines:
			return at
		case data[at] != quote:
		case !lines:
			return at + 1
		case bytes.HasPrefix(data[at:], long):
			end := at + 3 // up to two more quotes are part of the text
			for n := 0; n < 2 && end < len(data) && data[end] == quote; n++ {
				end++
			}
			return end
		}
	}
	return len(data)
}
