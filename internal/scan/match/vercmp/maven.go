package vercmp

import (
	"strings"

	scalibr "github.com/google/osv-scalibr/semantic"
)

// maven is a version of Maven.
type maven struct {
	scalibr.MavenVersion
}

func (v maven) compare(other value) int {
	n, _ := v.Compare(other.(maven).MavenVersion)
	return n
}

// parseMaven parses a version of a Java package. Maven accepts every text: an unresolved
// placeholder ("${project.version}") is refused here.
func parseMaven(text string) (value, error) {
	text = strings.TrimSpace(text)
	if text == "" || strings.ContainsAny(text, "${}@ ,;()[]") {
		return nil, notOf(Maven, text)
	}
	return maven{scalibr.ParseMavenVersion(withHyphens(text))}, nil
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
