package vercmp

import (
	"strings"

	scalibr "github.com/google/osv-scalibr/semantic"
)

// gemVersion is a version of RubyGems.
type gemVersion struct {
	scalibr.RubyGemsVersion
}

func (v gemVersion) compare(other parsedVersion) int {
	n, _ := v.Compare(other.(gemVersion).RubyGemsVersion) // both have one type: it cannot fail
	return n
}

// parseGem parses a version of a gem. The library accepts every text, does not know that a hyphen
// begins a pre-release, and keeps leading zeros: these three cases are handled here.
func parseGem(text string) (parsedVersion, error) {
	rest := withoutPlatform(strings.TrimSpace(text))
	if first, _, _ := strings.Cut(rest, "."); !isNumber(strings.Split(first, "-")[0]) {
		return nil, invalidVersionError(RubyGems, text)
	}
	var segments []string
	for part := range strings.SplitSeq(strings.ReplaceAll(rest, "-", ".pre."), ".") {
		if part == "" {
			return nil, invalidVersionError(RubyGems, text)
		}
		for part != "" {
			n := runLength(part)
			if n == 0 {
				return nil, invalidVersionError(RubyGems, text)
			}
			segments = append(segments, withoutZerosIfNumber(part[:n]))
			part = part[n:]
		}
	}
	return gemVersion{scalibr.ParseRubyGemsVersion(strings.Join(segments, "."))}, nil
}

// gemPlatforms are the prefixes of a gem's platform, which lock files write after its version:
// "1.13.10-x86_64-darwin".
var gemPlatforms = []string{
	"java", "jruby", "ruby", "x86_64-", "x86-", "x64-", "x64_", "i386-", "i486-", "i586-", "i686-", "arm64-", "arm-",
	"aarch64-",
	"universal-", "mswin", "mingw", "powerpc-", "ppc64", "s390x-", "riscv64-", "darwin", "linux", "wasm32-", "sparc-",
}

func withoutPlatform(text string) string {
	for at := range len(text) {
		if text[at] != '-' {
			continue
		}
		for _, p := range gemPlatforms {
			if strings.HasPrefix(text[at+1:], p) {
				return text[:at]
			}
		}
	}
	return text
}

// runLength returns the number of leading digits, or else letters, of s.
func runLength(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	if n > 0 {
		return n
	}
	for n < len(s) && isLetter(s[n]) {
		n++
	}
	return n
}

func withoutZerosIfNumber(s string) string {
	if isDigit(s[0]) {
		return trimLeadingZeros(s)
	}
	return s
}
