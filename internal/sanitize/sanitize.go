// Package sanitize keeps untrusted texts from controlling a terminal: it replaces control
// characters, those that change the direction of writing, and other invisible ones.
//
// It does not shorten texts and does not validate names.
//
// Invariant: sanitized text has only visible characters; sanitized JSON means the same.
package sanitize

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// EscapeText replaces each such character by a question mark.
func EscapeText(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Lines is EscapeText for texts of several lines: line ends and tabs stay.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if hidden(r) {
			return '?'
		}
		return r
	}, s)
}

// EscapeJSON writes a JSON text with each such character escaped. They occur only within strings,
// so that the meaning of the text stays the same.
func EscapeJSON(w io.Writer, text []byte) error {
	_, err := w.Write(escaped(text))
	return err
}

// IsClean reports whether a text has no such character. Line ends and tabs are allowed.
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
		if hidden(r) && r != '\r' { // which is white space in JSON
			out = escape(out, r)
		} else {
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}

// escape appends a character as JSON escapes it: those beyond 16 bits as two.
func escape(out []byte, r rune) []byte {
	if a, b := utf16.EncodeRune(r); a != utf8.RuneError {
		return escape(escape(out, a), b)
	}
	const digits = "0123456789abcdef"
	return append(out, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
