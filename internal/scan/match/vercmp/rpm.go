package vercmp

import (
	"cmp"
	"strings"
)

// rpmVersion is a version of an RPM package: epoch, version and release, as rpm-version(7) orders them.
type rpmVersion struct {
	epoch      string // a number without leading zeros; "0" where there is none
	version    string
	release    string
	hasRelease bool // one without a release is below all that have one
}

// parseRPM parses "[epoch:]version[-release]".
func parseRPM(text string) (parsedVersion, error) {
	v := rpmVersion{epoch: "0", version: text}
	if epoch, rest, ok := strings.Cut(text, ":"); ok {
		if !isNumber(epoch) || len(epoch) > maxEpochDigits {
			return nil, invalidVersionError(RPM, text)
		}
		v.epoch, v.version = trimLeadingZeros(epoch), rest
	}
	if at := strings.LastIndexByte(v.version, '-'); at >= 0 {
		v.version, v.release, v.hasRelease = v.version[:at], v.version[at+1:], true
		if v.release == "" {
			return nil, invalidVersionError(RPM, text)
		}
	}
	const others = "._+~^" // of names of packages; "-" and ":" separate the parts
	if v.version == "" || !hasOnly(v.version, others) || !hasOnly(v.release, others) {
		return nil, invalidVersionError(RPM, text)
	}
	return v, nil
}

func (v rpmVersion) compare(other parsedVersion) int {
	w := other.(rpmVersion)
	c := cmp.Or(compareNumbers(v.epoch, w.epoch), compareRPMParts(v.version, w.version))
	switch {
	case c != 0:
		return c
	case v.hasRelease != w.hasRelease:
		return map[bool]int{true: 1, false: -1}[v.hasRelease]
	}
	return compareRPMParts(v.release, w.release)
}

// compareRPMParts compares texts segment by segment.
func compareRPMParts(a, b string) int {
	for {
		var x, y rpmSegment
		x, a = nextRPMSegment(a)
		y, b = nextRPMSegment(b)
		if x.rank != y.rank {
			return cmp.Compare(x.rank, y.rank)
		}
		switch x.rank {
		case rpmEnd:
			return 0
		case rpmNumber:
			if c := compareNumbers(strings.TrimLeft(x.text, "0"), strings.TrimLeft(y.text, "0")); c != 0 {
				return c
			}
		default:
			if c := strings.Compare(x.text, y.text); c != 0 {
				return c
			}
		}
	}
}

// rpmSegment is a run of digits or letters, or one of the two signs with a meaning.
type rpmSegment struct {
	rank rpmRank
	text string
}

// rpmRank is the order of segments at the same position.
type rpmRank int

const (
	rpmTilde rpmRank = iota
	rpmEnd
	rpmCaret
	rpmWord
	rpmNumber
)

// nextRPMSegment returns the first segment of a text, and the text after it. Separators have no order.
func nextRPMSegment(s string) (rpmSegment, string) {
	for s != "" && !isDigit(s[0]) && !isLetter(s[0]) && s[0] != '~' && s[0] != '^' {
		s = s[1:]
	}
	switch {
	case s == "":
		return rpmSegment{rank: rpmEnd}, ""
	case s[0] == '~':
		return rpmSegment{rank: rpmTilde}, s[1:]
	case s[0] == '^':
		return rpmSegment{rank: rpmCaret}, s[1:]
	case isDigit(s[0]):
		n := digitRun(s)
		return rpmSegment{rpmNumber, n}, s[len(n):]
	}
	n := 0
	for n < len(s) && isLetter(s[n]) {
		n++
	}
	return rpmSegment{rpmWord, s[:n]}, s[n:]
}
