package vulndb

import "time"

// Ecosystem is where packages of a name come from, named as OSV does.
type Ecosystem string

// The ecosystems that advisories are kept of.
const (
	RubyGems Ecosystem = "RubyGems"
	PyPI     Ecosystem = "PyPI"
	NPM      Ecosystem = "npm"
	Maven    Ecosystem = "Maven"
	Go       Ecosystem = "Go"
	Crates   Ecosystem = "crates" + ".io" // in two, as hosts of packages stay out of the sources
	Homebrew Ecosystem = "Homebrew"
)

// Source is who says something: of advisories, of scores.
type Source string

// The sources.
const (
	GoVuln      Source = "go"
	GHSA        Source = "ghsa"
	PyPA        Source = "pypa"
	RustSec     Source = "rustsec"
	RubySec     Source = "rubysec"
	HomebrewOSV Source = "homebrew"
	OSV         Source = "osv" // a record of an OSV zip that none of the others wrote
	NVD         Source = "nvd"
	CNA         Source = "cna" // who assigned the CVE, in its CVE record
	ADP         Source = "adp" // who added to that record
)

// Advisory is what one record of one source says of one package. Records that were
// withdrawn and those that are informational are not kept.
type Advisory struct {
	ID        string // of the source: "GO-2024-2687", "GHSA-jfh8-c2jp-5v3q", "RUSTSEC-2021-0003"
	Source    Source
	CVEs      []string // that it is about, sorted; none: it is reported under ID
	Related   []string // other names of the same, sorted
	Ecosystem Ecosystem
	Name      string // as the source writes it
	URL       string // of the record, for people; may be empty
	Platform  string // "jruby": it is about the packages for that platform alone; "" is all

	// A version is affected when one of the ranges holds it, or when Versions names it.
	Ranges   []Range
	Versions []string

	// Unconfirmed says that nobody has reviewed it and a range has no end. What matches it is
	// marked and never fails a build.
	Unconfirmed bool
}

// Range is an interval of versions, in the order of its ecosystem.
type Range struct {
	Introduced     string // first version of it; "" is the first of all
	IntroducedOpen bool   // Introduced itself is outside
	Fixed          string // first version behind it; "" when there is none, or LastAffected is set
	LastAffected   string // last version of it; "" when there is none
}

// Vulnerability is what is known of one id, whoever is affected.
type Vulnerability struct {
	ID             string // a CVE id, or that of an advisory that has none
	Score          Score  // by precedence: NVD v3.1, CNA or ADP v3, GHSA v3, v4, v2
	URL            string
	Related        []string  // ids of the advisories that are about it, sorted
	Exploited      bool      // in the catalog of known exploited vulnerabilities
	ExploitedSince time.Time // when it came into that catalog
	EPSS           float64   // probability of exploitation, 0 to 1; 0 is unknown
	EPSSPercentile float64
	Rejected       bool // its number was given back: it is no vulnerability
}

// Score is how bad something is. The zero value is: unknown.
type Score struct {
	Base     float64  // 0.0 to 10.0
	Severity Severity // of Base, or what the source says where it gives no number
	Version  string   // of CVSS: "3.1"
	Vector   string
	Source   Source
}

// Severity is a score in words.
type Severity string

// The severities, lowest first.
const (
	Unknown  Severity = "unknown"
	Low      Severity = "low"
	Medium   Severity = "medium"
	High     Severity = "high"
	Critical Severity = "critical"
)

// Applicability says to which products a vulnerability applies: one configuration of a CVE.
type Applicability struct {
	ID     string // of the CVE
	Source Source // who says so: NVD, CNA or ADP; overrides of NVD's records count as NVD's
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
	Vulnerable bool   // false: it only has to be there (the platform that something runs on)

	StartIncluding, StartExcluding string // "" is none
	EndIncluding, EndExcluding     string
}
