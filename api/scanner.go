package api

import (
	"time"
)

// ScanReport is the image scanner's report in JSON.
type ScanReport struct {
	Matches  []ScanMatch   `json:"matches"` // sorted by package name
	Source   ScanSource    `json:"source"`
	Coverage *ScanCoverage `json:"coverage,omitempty"` // ours
}

// ScanPackages is the image scanner's list of packages in JSON.
type ScanPackages struct {
	Packages []ScanPackage `json:"packages"` // sorted by name
	Source   ScanSource    `json:"source"`
	Coverage *ScanCoverage `json:"coverage,omitempty"` // ours
}

// ScanSource is the scanned object.
type ScanSource struct {
	Type   string `json:"type"`   // "vm_image", "registry_template", "container", "sbom" or "dir"
	Target string `json:"target"` // path of the scanned image, document or directory, uuid:tag of a template

	// Of a template; the rest is ours.
	Template   string `json:"template,omitempty"`    // name
	TemplateID string `json:"template-id,omitempty"` // uuid
	Tag        string `json:"tag,omitempty"`         // of the scanned version
	ContentID  string `json:"content-id,omitempty"`  // of the scanned version

	// Of a container image.
	Image    string `json:"image,omitempty"`    // its first reference
	Digest   string `json:"digest,omitempty"`   // of its manifest, or of its configuration in an archive of Docker
	Platform string `json:"platform,omitempty"` // "linux/amd64"
}

// ScanMatch is a vulnerability of one version of a package at one location.
type ScanMatch struct {
	Vulnerability ScanVulnerability `json:"vulnerability"`
	MatchDetails  []ScanDetail      `json:"matchDetails"`
	Artifact      ScanPackage       `json:"artifact"`
}

// ScanVulnerability is a vulnerability in a report. What follows Severity is ours.
type ScanVulnerability struct {
	ID        string  `json:"id"`         // a CVE ID, or the source's ID without one
	BaseScore float64 `json:"base-score"` // 0 is unknown
	Severity  string  `json:"severity"`   // low, medium, high, critical or unknown

	URL           string   `json:"url,omitempty"`
	Related       []string `json:"related,omitempty"` // ids that the sources have for it
	FixedVersions []string `json:"fixed-versions,omitempty"`
	Exploited     bool     `json:"known-exploited,omitempty"`
	EPSS          float64  `json:"epss,omitempty"`        // 0 to 1
	Unconfirmed   bool     `json:"unconfirmed,omitempty"` // not reviewed yet: it never fails a build

	// DistroPatched is "unknown" for a package that belongs to one of a distribution which has no advisory about the
	// vulnerability and that: it may have been fixed without a change of the version. It never fails a build.
	DistroPatched string `json:"distro-patched,omitempty"`

	// Reachable reports whether the program at the location has the vulnerable code: "linked", "not linked" or
	// "unknown". Only packages of Go have it, in reports of the image scanner.
	Reachable       string   `json:"reachable,omitempty"`
	LinkedFunctions []string `json:"linked-functions,omitempty"` // vulnerable ones of the program, at most 10

	Title       string   `json:"title,omitempty"`       // one line, at most 200 bytes
	Description string   `json:"description,omitempty"` // at most 600 bytes, may be Markdown
	Vector      string   `json:"cvss-vector,omitempty"` // of BaseScore: "CVSS:3.1/AV:N/..."
	References  []string `json:"references,omitempty"`  // addresses of web pages, at most 10
}

// ScanDetail describes why a package matched.
type ScanDetail struct {
	CPE        string `json:"matched-cpe"`
	Version    string `json:"matched-version"`
	Constraint string `json:"matched-constraint"` // version range that matches
	Type       string `json:"match-type"`         // "Semantic"
}

// ScanPackage is a package in a report.
type ScanPackage struct {
	Name      string         `json:"name"`
	Version   string         `json:"version"`
	Type      string         `json:"type"` // ecosystem of the package
	Locations []ScanLocation `json:"locations"`
	Language  string         `json:"language"`
	Licenses  []string       `json:"licenses"`
	CPEs      []string       `json:"cpes"`
	PURL      string         `json:"purl"`

	// Metadata describes where a package of an operating system is from, a package that belongs to another one, or
	// one for development, and what else tells packages apart; null for all others.
	Metadata *ScanPackageMetadata `json:"metadata"`
}

// ScanPackageMetadata reports which operating system installed a package, which package its files belong to, whether
// its code is that of its name, or that it is for development alone.
type ScanPackageMetadata struct {
	Distribution  string `json:"distribution,omitempty"`  // release that installed it or its owner: "debian:12"
	Source        string `json:"source,omitempty"`        // source package that it is built from
	SourceVersion string `json:"sourceVersion,omitempty"` // version of the source package
	Arch          string `json:"arch,omitempty"`          // architecture, as the operating system spells it
	Owner         string `json:"owner,omitempty"`         // package that its files belong to: "deb/jq@1.6-2.1"
	Development   bool   `json:"development,omitempty"`   // only lock files list it, for development alone

	// BundleIDs tell applications of macOS with one name apart; one without a bundle identifier has "".
	BundleIDs []string `json:"bundleIds,omitempty"`
	// Replaced reports that the code is not that of the name and version, so that advisories do not apply.
	Replaced bool `json:"replaced,omitempty"`
}

// ScanLocation is a file that identifies a package.
type ScanLocation struct {
	Path string `json:"path"` // file that the package was found in
}

// ScanCoverage describes the basis of a report, and what it does not cover.
type ScanCoverage struct {
	Partial  bool             `json:"partial"`       // something that may have packages could not be read
	Volumes  []ScanVolume     `json:"volumes"`       // file systems that were read
	Skipped  []ScanSkipped    `json:"skipped"`       // volumes and directories that were left out
	Unread   []ScanUnreadable `json:"unread"`        // at most 100 of Unreads
	Unreads  int              `json:"unread-files"`  // files and directories that could not be read
	Odd      []ScanUnreadable `json:"odd"`           // at most 100 of Odds
	Odds     int              `json:"odd-files"`     // files that do not match their names: nothing is missed
	Hidden   map[string]int   `json:"hidden"`        // suppressed matches, by reason
	Unknown  int              `json:"unknown-score"` // matches without a score
	Database *ScanDatabase    `json:"database,omitempty"`
	Excluded int              `json:"excluded-paths,omitempty"` // files and directories that --exclude left out
	// Development counts packages that only lock files list, for development alone, and that were left out.
	Development int `json:"development-packages,omitempty"`

	Ignored []ScanIgnoreRule `json:"ignore-rules,omitempty"` // of the configuration, with what each left out

	// Packages whose version could not be compared with an entry of the database: there may be unknown matches.
	Unjudged  []ScanNotEvaluated `json:"unjudged,omitempty"` // at most 100 of Unjudgeds
	Unjudgeds int                `json:"unjudged-packages,omitempty"`

	// NoAdvisories are the kinds of packages, and the releases of operating systems, that the database has no
	// advisories for: their packages were not evaluated, and the report is partial.
	NoAdvisories []ScanNoAdvisories `json:"no-advisories,omitempty"`
}

// ScanNoAdvisories is a kind of packages or a release without advisories.
type ScanNoAdvisories struct {
	Type         string `json:"type"`
	Distribution string `json:"distribution,omitempty"` // of packages of an operating system: "alpine:3.20"
	Packages     int    `json:"packages"`
	Message      string `json:"message"` // "no advisories for alpine:3.20: 214 packages were not evaluated"
}

// ScanIgnoreRule is an ignore rule of the configuration. What it names must all hold.
type ScanIgnoreRule struct {
	ID      string `json:"id,omitempty"`      // of a CVE or an advisory
	Package string `json:"package,omitempty"` // pattern of names, or of type/name
	Path    string `json:"path,omitempty"`    // pattern of locations
	Reason  string `json:"reason"`
	Expires string `json:"expires,omitempty"` // last day of the rule, "2026-12-31"
	Expired bool   `json:"expired,omitempty"` // it left nothing out any more
	Count   int    `json:"count"`             // vulnerabilities of packages that it left out, at some location or at all
}

// ScanNotEvaluated is a package that could not be evaluated.
type ScanNotEvaluated struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Type    string `json:"type"`
	Reason  string `json:"reason"` // why its version could not be compared
}

// ScanVolume is a file system that was scanned.
type ScanVolume struct {
	Name     string `json:"name"`   // of the file system
	Role     string `json:"role"`   // "data", "system" or ""
	Format   string `json:"format"` // "apfs", "btrfs", "ext4", "hfsplus", "xfs", "layers", "dir" or that of a bill of materials
	Mount    string `json:"mount"`  // where the paths of its packages begin
	Files    int64  `json:"files"`
	Packages int    `json:"packages"`
	// Notes describe potential problems of the input, such as a journal that was not replayed.
	Notes []string `json:"notes,omitempty"`
}

// ScanSkipped is a part of a disk that was not scanned.
type ScanSkipped struct {
	Name    string `json:"name"` // of the volume or directory
	Reason  string `json:"reason"`
	Partial bool   `json:"partial"` // it may have packages
}

// ScanUnreadable is a file that could not be read.
type ScanUnreadable struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// ScanDatabase is the vulnerability database of a report.
type ScanDatabase struct {
	Built   time.Time            `json:"built"`
	Sources []ScanDatabaseSource `json:"sources"`
}

// ScanDatabaseSource is a source of advisories.
type ScanDatabaseSource struct {
	Name    string    `json:"name"`
	Date    time.Time `json:"date,omitzero"` // of its newest record
	Records int64     `json:"records"`
}
