package vercmp

import (
	"errors"
	"fmt"
	"strings"
)

// MaxVersionBytes is the maximum length of a version in bytes. The longest known ones in package
// registries are pseudo-versions of less than a hundred.
const MaxVersionBytes = 256

// ErrInvalidVersion is wrapped by every error of Parse.
var ErrInvalidVersion = errors.New("not a version")

// Scheme is a set of rules for versions.
type Scheme string

// The schemes.
const (
	SemVer   Scheme = "SemVer"   // npm, crates; Go modules with or without their "v"
	GoTool   Scheme = "Go"       // of Go itself: "go1.22.3", "1.21rc2"
	PEP440   Scheme = "PEP 440"  // Python
	RubyGems Scheme = "RubyGems" // Gem::Version
	Maven    Scheme = "Maven"    // ComparableVersion
	Homebrew Scheme = "Homebrew" // version and revision: "6.0_8"
	NVD      Scheme = "NVD"      // arbitrary versions of makers: numbers, letters, words
	Deb      Scheme = "dpkg"     // Debian, Ubuntu: "3:3.2.19-1+deb12u1"
	RPM      Scheme = "rpm"      // Red Hat, SUSE and their relatives: "1:1.1.1k-12.el8_9"
	APK      Scheme = "apk"      // Alpine: "3.1.4-r5"
)

// Version is a parsed version of a scheme.
type Version struct {
	scheme Scheme
	raw    string
	parsed parsedVersion // nil for the plain numbers of Scheme.isPlain
}

// parsedVersion is a parsed version, comparable with others of its scheme.
type parsedVersion interface {
	// compare returns a negative number, zero, or a positive one if the version is below, equal to
	// or above other, which is of the same type.
	compare(other parsedVersion) int
}

// String returns the original text of the version.
func (v Version) String() string { return v.raw }

// Compare returns a negative number, zero, or a positive one if v is below, equal to or above w.
// Both must be of the same scheme.
func (v Version) Compare(w Version) int {
	if v.parsed == nil && w.parsed == nil {
		return compareDottedNumbers(v.raw, w.raw)
	}
	return v.parsedValue().compare(w.parsedValue())
}

// parsedValue returns the value of a version, also of a plain one.
func (v Version) parsedValue() parsedVersion {
	if v.parsed != nil {
		return v.parsed
	}
	full, err := parsers[v.scheme](v.raw)
	if err != nil { // every scheme accepts its plain numbers
		panic(err)
	}
	return full
}

var parsers = map[Scheme]func(string) (parsedVersion, error){
	SemVer:   parseSemVer,
	GoTool:   parseGoTool,
	PEP440:   parsePEP440,
	RubyGems: parseGem,
	Maven:    parseMaven,
	Homebrew: parseHomebrew,
	NVD:      parseNVD,
	Deb:      parseDeb,
	RPM:      parseRPM,
	APK:      parseAPK,
}

// isPlain reports whether a text is a plain number that a scheme orders as compareDottedNumbers does.
func (s Scheme) isPlain(text string) bool {
	switch s {
	case Deb, RPM, APK: // to them 1.0 is above 1
		return false
	case SemVer, GoTool:
		return strings.Count(text, ".") <= 2 && isDottedNumber(text)
	default:
		return isDottedNumber(text)
	}
}

// Parse parses a version.
func Parse(s Scheme, text string) (Version, error) {
	parse, ok := parsers[s]
	if !ok {
		return Version{}, fmt.Errorf("%w: unknown scheme %q", ErrInvalidVersion, string(s))
	}
	if text == "" {
		return Version{}, fmt.Errorf("%w: version is empty", ErrInvalidVersion)
	}
	if len(text) > MaxVersionBytes {
		return Version{}, fmt.Errorf("%w: version has %d bytes, the limit is %d", ErrInvalidVersion, len(text),
			MaxVersionBytes)
	}
	if s.isPlain(text) {
		return Version{scheme: s, raw: text}, nil
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] == 0x7f {
			return Version{}, fmt.Errorf("%w: %q has control characters", ErrInvalidVersion, text)
		}
	}
	v, err := parse(text)
	if err != nil {
		return Version{}, err
	}
	return Version{scheme: s, raw: text, parsed: v}, nil
}

// invalidVersionError returns the error for a text that is invalid in a scheme.
func invalidVersionError(s Scheme, text string) error {
	return fmt.Errorf("%w of %s: %q", ErrInvalidVersion, string(s), text)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
