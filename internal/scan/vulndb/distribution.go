package vulndb

import (
	"regexp"
	"strings"
)

// Distributions of operating systems whose advisories are stored. Their ecosystems have the release
// after a colon, as OSV writes it: "Debian:12", "Ubuntu:22.04:LTS", "Ubuntu:Pro:22.04:LTS",
// "Alpine:v3.18", "Rocky Linux:9", "AlmaLinux:9", "Red Hat:enterprise_linux:9::appstream",
// "SUSE:Linux Enterprise Module for Basesystem 15 SP5", "openSUSE:Leap 15.5".
const (
	Debian     Ecosystem = "Debian"
	Ubuntu     Ecosystem = "Ubuntu"
	Alpine     Ecosystem = "Alpine"
	RockyLinux Ecosystem = "Rocky Linux"
	AlmaLinux  Ecosystem = "AlmaLinux"
	RedHat     Ecosystem = "Red Hat"
	SUSE       Ecosystem = "SUSE"
	OpenSUSE   Ecosystem = "openSUSE"
)

// releasePatterns match the releases whose advisories are stored, without their distribution. Red Hat's
// extended support and SUSE's other products are not.
var releasePatterns = map[Ecosystem]*regexp.Regexp{
	Debian:     regexp.MustCompile(`^\d+$`),
	Ubuntu:     regexp.MustCompile(`^(Pro:)?\d+\.\d+(:LTS)?$`),
	Alpine:     regexp.MustCompile(`^v\d+\.\d+$`),
	RockyLinux: regexp.MustCompile(`^\d+$`),
	AlmaLinux:  regexp.MustCompile(`^\d+$`),
	RedHat:     regexp.MustCompile(`^enterprise_linux:(\d|\d\d(\.\d+)?)(::[a-z_]+)?$`),
	SUSE:       regexp.MustCompile(`^(Linux Enterprise [A-Za-z0-9 ]+|Package Hub) ` + suseRelease + `(-[A-Z-]+)?$`),
	OpenSUSE:   regexp.MustCompile(`^(Leap \d+\.\d+( NonFree)?|Tumbleweed)$`),
}

// suseRelease is a release of SUSE Linux Enterprise: "15 SP5", "12-SP2", "15", "16.0".
const suseRelease = `(1[0-9](?:[ -]SP\d+|\.\d+)?)`

// Distribution returns the part of an ecosystem before its release, "" where that is not a
// distribution.
func (e Ecosystem) Distribution() Ecosystem {
	name, _, _ := strings.Cut(string(e), ":")
	if releasePatterns[Ecosystem(name)] == nil {
		return ""
	}
	return Ecosystem(name)
}

// IsRelease reports whether the ecosystem is a release of a distribution whose advisories are stored.
func (e Ecosystem) IsRelease() bool {
	name, release, _ := strings.Cut(string(e), ":")
	p := releasePatterns[Ecosystem(name)]
	return p != nil && p.MatchString(release)
}

// releaseKey returns the ecosystem under which advisories are stored and found. Ubuntu's "LTS" is not
// part of a release's name; repositories of Red Hat, and modules and support phases of SUSE, are parts of
// one release.
func releaseKey(e Ecosystem) string {
	name, release, found := strings.Cut(string(e), ":")
	if !found { // as all ecosystems of languages
		return string(e)
	}
	if releasePatterns[Ecosystem(name)] == nil || !e.IsRelease() {
		return string(e)
	}
	switch Ecosystem(name) {
	case Ubuntu:
		release = strings.TrimSuffix(release, ":LTS")
	case RedHat:
		release, _, _ = strings.Cut(release, "::")
		release, _, _ = strings.Cut(release, ".") // "enterprise_linux:10.0"
	case SUSE:
		m := releasePatterns[SUSE].FindStringSubmatch(release)
		release = "Linux Enterprise " + strings.Replace(m[2], "-SP", " SP", 1)
	case OpenSUSE:
		release = strings.TrimSuffix(release, " NonFree")
	}
	return name + ":" + release
}
