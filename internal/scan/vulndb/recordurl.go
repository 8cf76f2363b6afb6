package vulndb

import "strings"

// RecordURL returns the web address of a source's record, where it follows from its ID; "" otherwise.
func RecordURL(source Source, id string) string {
	switch source {
	case GoVuln:
		return "https://pkg.go.dev/vuln/" + id
	case GHSA:
		return "https://github.com/advisories/" + id
	case RustSec:
		return "https://rustsec.org/advisories/" + id + ".html"
	case PyPA, HomebrewOSV, OSV, DebianOSV, DebianDSA, UbuntuOSV, UbuntuUSN, AlpineOSV, RockyErrata, AlmaErrata,
		RedHatErrata, SUSEErrata:
		return "https://osv.dev/vulnerability/" + id
	case DebianTracker:
		return "https://security-tracker.debian.org/tracker/" + id
	case RubySec:
		return "https://rubysec.com/advisories/" + id + "/"
	default:
		return cveURL(id)
	}
}

// cveURL returns the web page of a CVE.
func cveURL(id string) string {
	if !strings.HasPrefix(id, "CVE-") {
		return ""
	}
	return "https://nvd.nist.gov/vuln/detail/" + id
}
