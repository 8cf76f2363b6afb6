package match

import (
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// otherVendorMarks are in the versions of packages that others build for a distribution, often under the name of a
// package that it has, too: those of NodeSource, PostgreSQL, nginx.org, MariaDB, Redis, deb.sury.org, Remi's
// repository and ELRepo.
var otherVendorMarks = []string{"nodesource", "pgdg", ".ngx", "+maria~", "-1rl1", "sury.org", ".remi", ".elrepo"}

// releaseNames follow a tilde in the versions of packages that others build for a release of Debian or Ubuntu, whose
// own packages have its number there: nginx 1.24.0-1~bookworm, docker-ce 5:24.0.7-1~ubuntu.22.04~jammy.
var releaseNames = []string{
	"stretch", "buster", "bullseye", "bookworm", "trixie", "forky", "xenial", "bionic", "focal", "jammy", "noble",
}

// otherVendor returns the part of a version that only packages of other vendors than their distribution have, "" for
// none.
func otherVendor(kind catalog.PackageType, version string) string {
	if !kind.IsOS() {
		return ""
	}
	version = strings.ToLower(version)
	for _, mark := range otherVendorMarks {
		if strings.Contains(version, mark) {
			return mark
		}
	}
	for _, name := range releaseNames {
		if kind == catalog.Deb && strings.Contains(version, "~"+name) {
			return "~" + name
		}
	}
	return ""
}
