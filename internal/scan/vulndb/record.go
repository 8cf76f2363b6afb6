package vulndb

import "time"

// Ecosystem is the origin of packages, named as OSV does.
type Ecosystem string

// The ecosystems whose advisories are stored.
const (
	RubyGems Ecosystem = "RubyGems"
	PyPI     Ecosystem = "PyPI"
	NPM      Ecosystem = "npm"
	Maven    Ecosystem = "Maven"
	Go       Ecosystem = "Go"
	Crates   Ecosystem = "crates" + ".io" // split, because names of package hosts are kept out of the sources
	Homebrew Ecosystem = "Homebrew"
	SwiftURL Ecosystem = "SwiftURL"
	Rubies   Ecosystem = "Rubies" // implementations of Ruby, by RubySec; OSV has no name for them
)

// Source is the author of a record: of advisories, of scores.
type Source string

// The sources.
const (
	GoVuln      Source = "go"
	GHSA        Source = "ghsa"
	PyPA        Source = "pypa"
	RustSec     Source = "rustsec"
	RubySec     Source = "rubysec"
	HomebrewOSV Source = "homebrew"
	OSV         Source = "osv" // a record of an OSV zip by none of the others
	NVD         Source = "nvd"
	CNA         Source = "cna" // assigned the CVE, in its CVE record
	ADP         Source = "adp" // added to that record

	DebianTracker Source = "debian-tracker" // security-tracker.debian.org
	DebianOSV     Source = "debian"         // that tracker's entries in OSV's form: DEBIAN-CVE-…
	DebianDSA     Source = "dsa"            // announced fixes: DSA-…, DLA-…
	UbuntuOSV     Source = "ubuntu"         // UBUNTU-CVE-…
	UbuntuUSN     Source = "usn"            // announced fixes: USN-…
	AlpineOSV     Source = "alpine"         // ALPINE-CVE-…
	RockyErrata   Source = "rocky"          // RLSA-…
	AlmaErrata    Source = "almalinux"      // ALSA-…
	RedHatErrata  Source = "redhat"         // RHSA-…
	SUSEErrata    Source = "suse"           // SUSE-SU-…, openSUSE-SU-…
)

// Advisory is one source's record about one package. Withdrawn and informational records are not
// stored.
type Advisory struct {
	ID        string // of the source: "GO-2024-2687", "GHSA-jfh8-c2jp-5v3q", "RUSTSEC-2021-0003"
	Source    Source
	CVEs      []string // that it is about, sorted; without any it is reported under ID
	Related   []string // other names of the same vulnerability, sorted
	Ecosystem Ecosystem
	Name      string // in the spelling of the source
	URL       string // web page of the record; may be empty
	Platform  string // "jruby": it is about the packages for that platform alone; "" is all

	// A version is affected when one of the ranges contains it, or when Versions lists it.
	Ranges   []Range
	Versions []string

	// Unconfirmed reports that it was not reviewed and a range has no end. Its findings are marked
	// and never fail a build.
	Unconfirmed bool
}

// Range is an interval of versions, in the order of its ecosystem.
type Range struct {
	Introduced     string // first version of it; "" is the first of all
	IntroducedOpen bool   // Introduced itself is excluded
	Fixed          string // first version after it; "" when there is none, or LastAffected is set
	LastAffected   string // last version of it; "" when there is none
}

// Vulnerability is the record of one ID, independent of affected packages.
type Vulnerability struct {
	ID             string // a CVE ID, or that of an advisory without one
	Score          Score  // by precedence: NVD v3.1, CNA or ADP v3, GHSA v3, v4, v2
	URL            string
	Related        []string  // IDs of the advisories that are about it, sorted
	Exploited      bool      // in the catalog of known exploited vulnerabilities (KEV)
	ExploitedSince time.Time // when it was added to that catalog
	EPSS           float64   // probability of exploitation, 0 to 1; 0 is unknown
	EPSSPercentile float64
	Rejected       bool // its CVE was withdrawn
}

// Score is the severity of a vulnerability. The zero value is unknown.
type Score struct {
	Base     float64  // 0.0 to 10.0
	Severity Severity // of Base, or the source's word where it has no number
	Version  string   // of CVSS: "3.1"
	Vector   string
	Source   Source
}

// Severity is the level of a score.
type Severity string

// The severities, lowest first.
const (
	Unknown  Severity = "unknown"
	Low      Severity = "low"
	Medium   Severity = "medium"
	High     Severity = "high"
	Critical Severity = "critical"
)

// Applicability describes to which products a vulnerability applies: one configuration of a CVE.
type Applicability struct {
	ID     string // of the CVE
	Source Source // its author: NVD, CNA or ADP; overrides of NVD's records count as NVD's
	Nodes  []Node // all of them must hold
}

// Node is a part of a configuration: one of its criteria must hold.
type Node struct {
	Negate   bool
	All      bool // all criteria must hold (an AND node)
	Criteria []Criterion
}

// Criterion is a CPE with a range of versions.
type Criterion struct {
	CPE        string // CPE 2.3, formatted string
	Vulnerable bool   // false: it only has to be present (the platform of a product)

	StartIncluding, StartExcluding string // "" is none
	EndIncluding, EndExcluding     string
}
