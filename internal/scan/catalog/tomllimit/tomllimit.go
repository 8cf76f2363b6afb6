// Package tomllimit looks at TOML documents of which nothing is known, before they are read.
//
// It is not a reader of its own: it only sees how deep a document is nested. The reader
// calls itself for each level, and a stack without end ends the program.
//
// Invariant: a document that passes has no more than a bounded number of levels and values.
package tomllimit

import (
	"bytes"
	"fmt"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// MaxDepth is how deep arrays and tables may are in one another, and how many parts a
// key may have.
const MaxDepth = 64

// MaxValues is how many values and keys a document may have: in memory each takes far more
// than in the text.
const MaxValues = 2_000_000

// ErrDeep says that a document is nested deeper than any that means well.
var ErrDeep = fmt.Errorf("it is nested more than %d deep", MaxDepth)

// Check looks at a document.
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
			i = textEnd(data, i) - 1
		}
		if open > MaxDepth || dots > MaxDepth {
			return ErrDeep
		}
	}
	values := 0
	for _, mark := range []string{"[", "{", "=", ","} {
		values += bytes.Count(data, []byte(mark))
	}
	if values > MaxValues {
		return fmt.Errorf("%w: it has %d values", catalog.ErrTooLarge, values)
	}
	return nil
}

// lineEnd is where the line ends.
func lineEnd(data []byte, at int) int {
	if n := bytes.IndexByte(data[at:], '\n'); n >= 0 {
		return at + n
	}
	return len(data)
}

// textEnd is behind the end of a text. One of a single line that does not end there is an
// error to the reader, which goes no further.
func textEnd(data []byte, at int) int {
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
			end := at + 3 // up to two more quotes belong to the text
			for n := 0; n < 2 && end < len(data) && data[end] == quote; n++ {
				end++
			}
			return end
		}
	}
	return len(data)
}
