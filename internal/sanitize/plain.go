// Package sanitize keeps texts that somebody else chose from steering a terminal: control
// characters, those that turn the direction of writing, and others that cannot be seen.
//
// It does not shorten texts and judges no names.
//
// Invariant: what passes has only characters that are shown; EscapeJSON that passes means the same.
package sanitize

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// EscapeText puts a question mark in the place of each such character.
func EscapeText(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Lines is Text for texts of several lines: line ends and tabs stay.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if hidden(r) {
			return '?'
		}
		return r
	}, s)
}

// EscapeJSON writes a EscapeJSON text with each such character escaped. They stand within strings alone,
// so that what it means is the same.
func EscapeJSON(w io.Writer, text []byte) error {
	_, err := w.Write(escaped(text))
	return err
}

// IsClean reports whether a text has no such character. Line ends and tabs are none.
func IsClean(text string) bool { return !strings.ContainsFunc(text, hidden) }

func hidden(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// escaped returns the text itself when nothing is to be escaped, which is usual.
func escaped(text []byte) []byte {
	if bytes.IndexFunc(text, hidden) < 0 {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if hidden(r) && r != '\r' { // which is white space of EscapeJSON
			out = escape(out, r)
		} else {
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}

// escape adds a character as EscapeJSON writes it: those beyond 16 bits as two.
func escape(out []byte, r rune) []byte {
	if a, b := utf16.EncodeRune(r); a != utf8.RuneError {
		return escape(escape(out, a), b)
	}
	const digits = "0123456789abcdef"
	return append(out, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
