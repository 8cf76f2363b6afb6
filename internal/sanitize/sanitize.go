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

// EscapeLines is EscapeText for texts of several lines: line ends and tabs stay.
func EscapeLines(s string) string {
	return strings.Map(func(r rune) rune {
		if isHidden(r) {
			return '?'
		}
		return r
	}, s)
}

// EscapeJSON writes a JSON text with each such character escaped. They occur only within strings,
// so that the meaning of the text stays the same.
func EscapeJSON(w io.Writer, text []byte) error {
	_, err := w.Write(escapedJSON(text))
	return err
}

// IsClean reports whether a text has no such character. Line ends and tabs are allowed.
func IsClean(text string) bool { return !strings.ContainsFunc(text, isHidden) }

func isHidden(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// escapedJSON returns the text itself when nothing is to be escaped, which is usual.
func escapedJSON(text []byte) []byte {
	if bytes.IndexFunc(text, isHidden) < 0 {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if isHidden(r) && r != '\r' { // which is white space in JSON
			out = appendEscaped(out, r)
		} else {
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}

// appendEscaped appends a character as JSON escapes it: those beyond 16 bits as two.
func appendEscaped(out []byte, r rune) []byte {
	if a, b := utf16.EncodeRune(r); a != utf8.RuneError {
		return appendEscaped(appendEscaped(out, a), b)
	}
	const digits = "0123456789abcdef"
	return append(out, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
