package vercmp

import "strings"

// Most versions are only numbers with dots between. Every scheme compares those number by number
// with zero for missing ones, so that they need no parsing: this makes a scan of thousands of
// packages fast.

// isDottedNumber reports whether a text is numbers with single dots between.
func isDottedNumber(s string) bool {
	number := false
	for i := range len(s) {
		switch {
		case isDigit(s[i]):
			number = true
		case s[i] == '.' && number:
			number = false
		default:
			return false
		}
	}
	return number
}

// compareDottedNumbers compares two plain texts.
func compareDottedNumbers(a, b string) int {
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		if c := compareNumbers(strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")); c != 0 {
			return c
		}
	}
	return 0
}
