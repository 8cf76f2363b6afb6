package match

import (
	"strings"

	"github.com/buildyard/buildyard/internal/scan/match/vercmp"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// packageVersion is the parsed version of a package.
type packageVersion struct {
	scheme        vercmp.Scheme
	raw           string
	version       vercmp.Version
	publicVersion vercmp.Version // full without the local part of PEP 440
	err           error          // of parsing text: then only lists of versions can name it
}

func newPackageVersion(s vercmp.Scheme, text string) packageVersion {
	out := packageVersion{scheme: s, raw: text}
	out.version, out.err = vercmp.Parse(s, text)
	out.publicVersion = out.version
	if s == vercmp.PEP440 && out.err == nil && strings.Contains(text, "+") {
		out.publicVersion, out.err = vercmp.Parse(s, vercmp.WithoutLocal(text))
	}
	return out
}

// compare returns a negative number, zero, or a positive one if the version is below, equal to or
// above bound. A local part counts only where the bound has one too, as PEP 440 requires.
func (s packageVersion) compare(bound string) (int, error) {
	b, err := vercmp.Parse(s.scheme, bound)
	if err != nil {
		return 0, err
	}
	if strings.Contains(bound, "+") {
		return s.version.Compare(b), nil
	}
	return s.publicVersion.Compare(b), nil
}

// containedIn reports whether a range contains the version.
func (s packageVersion) containedIn(r vulndb.Range) (bool, error) {
	if s.scheme == vercmp.RPM && r.Fixed != "" && isModular(s.raw) != isModular(r.Fixed) {
		return false, nil // a module's package and the one outside of modules are built from different sources
	}
	if !isBeforeAll(r.Introduced) {
		c, err := s.compare(r.Introduced)
		if err != nil || c < 0 || c == 0 && r.IntroducedOpen {
			return false, err
		}
	}
	switch {
	case r.Fixed != "":
		c, err := s.compare(r.Fixed)
		return c < 0, err
	case r.LastAffected != "":
		c, err := s.compare(r.LastAffected)
		return err == nil && c <= 0, err
	}
	return true, nil
}

// isBeforeAll reports whether a range begins before all versions. OSV writes "0" for that, and a
// pre-release of 0.0.0 is inside too.
func isBeforeAll(introduced string) bool { return introduced == "" || introduced == "0" }

// isListed reports whether a list has the version.
func (s packageVersion) isListed(versions []string) bool {
	for _, v := range versions {
		if v == s.raw {
			return true
		}
		if s.err != nil || !mayBeSameVersion(v, s.raw) {
			continue
		}
		if c, err := s.compare(v); err == nil && c == 0 {
			return true
		}
	}
	return false
}

// mayBeSameVersion reports whether two spellings can be of one version: whether their first numbers are
// equal. It is cheap, and lists of versions are long.
func mayBeSameVersion(a, b string) bool {
	return strings.Contains(a, "!") || strings.Contains(b, "!") || firstNumber(a) == firstNumber(b)
}

func firstNumber(s string) string {
	s = strings.TrimLeft(s, " vV=0")
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	return s[:end]
}

// formatRange formats a range for users.
func formatRange(r vulndb.Range) string {
	var from, to string
	switch {
	case isBeforeAll(r.Introduced):
	case r.IntroducedOpen:
		from = "> " + r.Introduced
	default:
		from = ">= " + r.Introduced
	}
	switch {
	case r.Fixed != "":
		to = "< " + r.Fixed
	case r.LastAffected != "" && r.LastAffected == r.Introduced:
		return "= " + r.Introduced
	case r.LastAffected != "":
		to = "<= " + r.LastAffected
	}
	switch {
	case from != "" && to != "":
		return from + ", " + to
	case from == "" && to == "":
		return ">= 0"
	}
	return from + to
}
