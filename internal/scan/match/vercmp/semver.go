package vercmp

import (
	"strings"

	"golang.org/x/mod/semver"
)

// semverVersion is a version of Semantic Versioning, in the canonical form that x/mod/semver
// compares: "v1.2.3-rc.1".
type semverVersion string

func (v semverVersion) compare(other parsedVersion) int {
	return semver.Compare(string(v), string(other.(semverVersion)))
}

// parseSemVer parses the versions of npm, cargo and Go. Missing numbers count as zero and leading
// zeros are dropped, because manually written versions have them; the part after "+" does not
// affect the order.
func parseSemVer(text string) (parsedVersion, error) {
	rest, _, _ := strings.Cut(strings.TrimLeft(strings.TrimSpace(text), "v="), "+")
	rest = strings.TrimSpace(rest)
	core, pre, isPre := strings.Cut(rest, "-")
	numbers := strings.Split(core, ".")
	if len(numbers) > 3 || isPre && pre == "" {
		return nil, invalidVersionError(SemVer, text)
	}
	var b strings.Builder
	b.Grow(len(rest) + 5)
	for i := range 3 {
		n := "0"
		if i < len(numbers) {
			n = numbers[i]
		}
		if !isNumber(n) {
			return nil, invalidVersionError(SemVer, text)
		}
		b.WriteByte("v.."[i])
		b.WriteString(trimLeadingZeros(n))
	}
	sep := byte('-')
	for id := range strings.SplitSeq(pre, ".") {
		if !isPre {
			break
		}
		b.WriteByte(sep)
		if isNumber(id) {
			id = trimLeadingZeros(id)
		}
		b.WriteString(id)
		sep = '.'
	}
	if v := b.String(); semver.IsValid(v) {
		return semverVersion(v), nil
	}
	return nil, invalidVersionError(SemVer, text)
}

// parseGoTool parses a version of Go as its binaries report it, and as advisories of its standard
// library write it: "go1.21rc2" is "1.21.0-rc.2". A distributor's addition after a space ("go1.22.3
// X:boringcrypto") does not affect the order. The part after a hyphen does, for bounds end in "-0";
// see WithoutDistributor.
func parseGoTool(text string) (parsedVersion, error) {
	rest, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), "go"), " ")
	at := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if at <= 0 {
		return parseSemVer(rest)
	}
	core, word := rest[:at], rest[at:]
	for _, w := range []string{"alpha", "beta", "rc"} {
		if n, ok := strings.CutPrefix(word, w); ok {
			n, _, _ = strings.Cut(n, "-")
			if isNumber(n) {
				return parseSemVer(core + strings.Repeat(".0", max(0, 2-strings.Count(core, "."))) + "-" + w + "." + n)
			}
		}
	}
	return parseSemVer(rest)
}

// WithoutDistributor returns the version of a Go distribution without the distributor's addition after a
// hyphen: "go1.22.3-1" is Go 1.22.3. A pre-release ("1.23-devel") stays.
func WithoutDistributor(text string) string {
	version, suffix, _ := strings.Cut(text, "-")
	for _, w := range []string{"devel", "alpha", "beta", "rc"} {
		if strings.HasPrefix(suffix, w) {
			return text
		}
	}
	return version
}

func isNumber(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// trimLeadingZeros drops leading zeros.
func trimLeadingZeros(s string) string {
	if s = strings.TrimLeft(s, "0"); s == "" {
		return "0"
	}
	return s
}
