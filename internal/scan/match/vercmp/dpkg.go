package vercmp

import (
	"cmp"
	"strings"
)

// debVersion is a version of a Debian package: Debian Policy 5.6.12.
type debVersion struct {
	epoch    string // a number without leading zeros
	upstream string
	revision string // "" equals "0"
}

// parseDeb parses "[epoch:]upstream[-revision]". As dpkg does, it accepts an upstream version that
// does not begin with a digit.
func parseDeb(text string) (parsedVersion, error) {
	v := debVersion{epoch: "0", upstream: text}
	if epoch, rest, ok := strings.Cut(text, ":"); ok {
		if !isNumber(epoch) || len(epoch) > maxEpochDigits {
			return nil, invalidVersionError(Deb, text)
		}
		v.epoch, v.upstream = trimLeadingZeros(epoch), rest
	}
	if at := strings.LastIndexByte(v.upstream, '-'); at >= 0 {
		v.upstream, v.revision = v.upstream[:at], v.upstream[at+1:]
		if v.revision == "" || !hasOnly(v.revision, "+.~") {
			return nil, invalidVersionError(Deb, text)
		}
	}
	if v.upstream == "" || !hasOnly(v.upstream, "+.~-:") {
		return nil, invalidVersionError(Deb, text)
	}
	return v, nil
}

// maxEpochDigits is the length of the largest epoch that dpkg and rpm accept: 2^31 - 1.
const maxEpochDigits = 10

// hasOnly reports whether a text has only ASCII letters, digits, and the given characters.
func hasOnly(s, others string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) && !isLetter(s[i]) && strings.IndexByte(others, s[i]) < 0 {
			return false
		}
	}
	return true
}

func (v debVersion) compare(other parsedVersion) int {
	w := other.(debVersion)
	return cmp.Or(compareNumbers(v.epoch, w.epoch), compareDebParts(v.upstream, w.upstream),
		compareDebParts(v.revision, w.revision))
}

// compareDebParts compares texts in turn by a part without digits, and by the number after it. An empty
// number is zero.
func compareDebParts(a, b string) int {
	for a != "" || b != "" {
		i := 0
		for i < len(a) && !isDigit(a[i]) || i < len(b) && !isDigit(b[i]) {
			if c := cmp.Compare(debOrder(a, i), debOrder(b, i)); c != 0 {
				return c
			}
			i++
		}
		a, b = a[min(i, len(a)):], b[min(i, len(b)):]
		x, y := digitRun(a), digitRun(b)
		if c := compareNumbers(strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")); c != 0 {
			return c
		}
		a, b = a[len(x):], b[len(y):]
	}
	return 0
}

// debOrder returns the order of the character at a position: "~" is before the end and digits, letters
// after them, others last.
func debOrder(s string, i int) int {
	switch {
	case i >= len(s) || isDigit(s[i]):
		return 0
	case s[i] == '~':
		return -1
	case isLetter(s[i]):
		return int(s[i])
	}
	return int(s[i]) + 256
}

// digitRun returns the digits that a text begins with.
func digitRun(s string) string {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return s[:n]
}
