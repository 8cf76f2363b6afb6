package vercmp

import (
	"strings"

	scalibr "github.com/google/osv-scalibr/semantic"
)

// mavenVersion is a version of Maven.
type mavenVersion struct {
	scalibr.MavenVersion
}

func (v mavenVersion) compare(other parsedVersion) int {
	n, _ := v.Compare(other.(mavenVersion).MavenVersion)
	return n
}

// parseMaven parses a version of a Java package. Maven accepts every text: an unresolved
// placeholder ("${project.version}") is refused here.
func parseMaven(text string) (parsedVersion, error) {
	text = strings.TrimSpace(text)
	if text == "" || strings.ContainsAny(text, "${}@ ,;()[]") {
		return nil, invalidVersionError(Maven, text)
	}
	return mavenVersion{scalibr.ParseMavenVersion(withHyphens(text))}, nil
}

// withHyphens replaces the dot before a word by a hyphen: since Maven 3.8.7, "2.0.0.RC1" is
// "2.0.0-RC1", while the library has the older rule that distinguishes them.
func withHyphens(text string) string {
	b := []byte(text)
	for i := range len(b) - 1 {
		if b[i] == '.' && !isDigit(b[i+1]) && b[i+1] != '.' && b[i+1] != '-' {
			b[i] = '-'
		}
	}
	return string(b)
}
