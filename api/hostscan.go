package api

import (
	"encoding/json"
	"time"
)

// HostEnvelope is the envelope of the host scanner's REST API, which differs from that of the controller.
type HostEnvelope struct {
	Status string          `json:"status"` // StatusOK or StatusFail
	Body   json.RawMessage `json:"body"`   // the result; null on failure
	Error  string          `json:"error"`  // "" on success
}

// The states of the host scanner.
const (
	HostIdle        = "Idle"
	HostRealTime    = "Real-Time"
	HostRunningFull = "Running Full"
)

// HostState is the body of requests that change the state of the host scanner.
type HostState struct {
	State string `json:"state"` // HostIdle, HostRealTime or HostRunningFull
}

// HostStatus is the body of GET /v1/status. The fields after State are extensions.
type HostStatus struct {
	HostState
	Version   string          `json:"version"` // of the program
	Path      string          `json:"path"`    // that real-time scanning is restricted to; "" is the whole host
	Since     *time.Time      `json:"since"`   // last start of a scan; null is never
	Reset     *time.Time      `json:"reset"`   // last reset of the report; null is never
	Progress  *HostScan       `json:"progress"`
	LastScan  *HostScanResult `json:"last_scan"`
	Mounts    []HostMount     `json:"mounts"` // mounts and how they are watched in real-time mode
	Database  HostDatabase    `json:"database"`
	Counts    HostCounts      `json:"counts"`
	Pending   int             `json:"pending"`   // changes that wait to be read
	Analyzing bool            `json:"analyzing"` // packages are being compared with the database
	Warnings  []string        `json:"warnings"`
	Push      *HostPush       `json:"push"` // null: findings are not sent to a controller

	// NoAdvisories are those of the warnings that name kinds of packages or releases without advisories.
	NoAdvisories []string `json:"no_advisories,omitempty"`
}

// HostPush is the status of the reports to a controller.
type HostPush struct {
	URL   string     `json:"url"`   // "" before the first try
	Node  string     `json:"node"`  // of the report
	Sent  *time.Time `json:"sent"`  // last success; null is never
	Tried *time.Time `json:"tried"` // last try
	Error string     `json:"error"` // of the last try
}

// HostScan is the progress of a full scan.
type HostScan struct {
	Path     string    `json:"path"` // "" is the whole host
	Started  time.Time `json:"started"`
	Phase    string    `json:"phase"`  // "looking", "reading" or "judging"
	Files    int       `json:"files"`  // found files
	Wanted   int       `json:"wanted"` // of them that may hold packages; 0 until all were seen
	Read     int       `json:"read"`   // of those
	Packages int       `json:"packages"`
}

// HostScanResult is the result of a full scan.
type HostScanResult struct {
	Path         string    `json:"path"` // "": the whole host
	Started      time.Time `json:"started"`
	Seconds      float64   `json:"seconds"` // duration of the scan
	Files        int       `json:"files"`   // files found
	Read         int       `json:"read"`    // files that were read
	Packages     int       `json:"packages"`
	Denied       int       `json:"denied"`        // files and directories that the scanner may not read
	Unread       int       `json:"unread"`        // others that could not be read
	Skipped      int       `json:"skipped"`       // directories that were left out
	FirstUnread  []string  `json:"first_unread"`  // paths of the first of Unread
	FirstSkipped []string  `json:"first_skipped"` // paths of the first of Skipped
	Cancelled    bool      `json:"cancelled"`     // glossary:allow the spelling of former releases
	Error        string    `json:"error"`         // "" after success
}

// HostMount is a file system of the host, and how it is watched.
type HostMount struct {
	Path   string `json:"path"`   // of the mount point
	Type   string `json:"type"`   // of the file system
	Method string `json:"method"` // "": not watched
	Why    string `json:"why"`    // why it is not watched, or not in the best mode
}

// HostDatabase is the status of the vulnerability database of a host scanner.
type HostDatabase struct {
	Path     string     `json:"path"`     // of the database file
	Built    *time.Time `json:"built"`    // null: there is none
	Compared *time.Time `json:"compared"` // Built of the last database that all packages were compared with
	Checked  *time.Time `json:"checked"`  // last successful check for a newer one
	Next     *time.Time `json:"next"`     // next check
	Error    string     `json:"error"`    // of the last check, or of opening it
}

// HostCounts are the counts of a host's package inventory.
type HostCounts struct {
	Files           int   `json:"files"` // known files, with packages or without
	Packages        int   `json:"packages"`
	Vulnerabilities int   `json:"vulnerabilities"` // including those that the configuration suppresses
	Bytes           int64 `json:"bytes"`           // of the inventory on disk
	// OwnerDecided are vulnerabilities that are left out, because the distribution of the package of the operating
	// system that they are in has an advisory about them.
	OwnerDecided int `json:"owner_decided"`
}

// HostMark is the mark of a CI job on a host: what comes after it is in the report since that job.
type HostMark struct {
	Job     string    `json:"job"`
	Created time.Time `json:"created"`
	Path    string    `json:"path"` // of the packages that its report has; "" is the whole host
	// Incomplete is why packages may be missing in its report; "" is nothing known.
	Incomplete string `json:"incomplete"`
	// Unevaluated is why vulnerabilities of packages in its report may be missing. Only a request of one job has it.
	Unevaluated []string `json:"unevaluated,omitempty"`
}

// HostReport is the body of GET /v1/report.
type HostReport struct {
	Packages        []HostPackage       `json:"packages"`
	Vulnerabilities []HostVulnerability `json:"vulnerabilities"`
}

// HostPackage is a package of a host.
type HostPackage struct {
	ScanPackage
	CreationTime time.Time `json:"creation_time"` // when it was first found
}

// HostVulnerability is a vulnerability of a package of a host.
type HostVulnerability struct {
	Vulnerability HostFinding
	Package       HostFindingPackage
}

// HostFinding is the vulnerability of such an entry. The fields after RelatedVulnerabilities are extensions.
type HostFinding struct {
	MatchedCPEs            []HostMatchedCPE
	ID                     string  // a CVE ID, or the source's ID without one
	Namespace              string  // source and kind of the matched package: "nvd:cpe", "ghsa:npm"
	Score                  float64 // 0: unknown
	URL                    string
	RelatedVulnerabilities []HostRelated // null: none

	Severity      string    // low, medium, high, critical or unknown
	FixedVersions []string  `json:",omitempty"`
	Exploited     bool      `json:",omitempty"` // listed as known exploited
	EPSS          float64   `json:",omitempty"` // 0 to 1
	Unconfirmed   bool      `json:",omitempty"` // not reviewed yet
	DistroPatched string    `json:",omitempty"` // "unknown": a distribution may have patched the package
	Known         time.Time // when it was first known for the package
}

// HostRelated is another name of a vulnerability.
type HostRelated struct {
	ID        string
	Namespace string // source of that ID
}

// HostMatchedCPE describes why a package matched.
type HostMatchedCPE struct {
	Cpe        HostCPE
	Constraint string // version constraint that matches: "= 0.1.8"
	Version    string // the package's version
	MatchType  string // "Semantic"
}

// HostCPE contains the parts of a CPE 2.3, each escaped as in a well-formed name: "0\.1\.8". "" is any value,
// "-" none.
type HostCPE struct {
	Part, Vendor, Product, Version, Update, Edition, SWEdition, TargetSW, TargetHW, Other, Language string
}

// HostFindingPackage is the package of a vulnerability entry. The fields after Locations are extensions.
type HostFindingPackage struct {
	ID        string // a decimal number
	Name      string
	Version   string
	Type      string // ecosystem of the package
	Locations []ScanLocation
	Language  string
	Licenses  []string
	CPEs      []string
	PURL      string
	Metadata  *ScanPackageMetadata `json:",omitempty"` // nil: none
}

// HostEvent is posted to the webhook of the host scanner when packages or findings were added or removed. After
// large changes the lists are truncated, and Counts counts all.
type HostEvent struct {
	ID              string               `json:"id"`   // the same when an event is sent again
	Host            string               `json:"host"` // name of the machine
	Time            time.Time            `json:"time"`
	Cause           string               `json:"cause"` // "full scan", "real-time" or "database"
	Counts          HostChanges          `json:"counts"`
	Missed          int                  `json:"missed"` // earlier events that could not be sent
	Packages        []HostPackage        `json:"packages"`
	Vulnerabilities []HostVulnerability  `json:"vulnerabilities"`
	Gone            []HostRemovedPackage `json:"gone"` // removed packages
}

// HostChanges are the counts of an event.
type HostChanges struct {
	Packages        int `json:"packages"`        // new or changed packages
	Vulnerabilities int `json:"vulnerabilities"` // new findings
	Gone            int `json:"gone"`            // packages that were removed
}

// HostRemovedPackage is a package that is no longer on the host.
type HostRemovedPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Type    string `json:"type"` // ecosystem of the package
}
