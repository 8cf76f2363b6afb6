package api

import "time"

// PathScan is the route to which a node sends the findings of its host scanner, with its credential (POST).
const PathScan = "/queue/v1/scan"

// MaxNodeScan is the maximum size of a node's scan results, in bytes of JSON. They may be sent compressed
// (Content-Encoding: gzip).
const MaxNodeScan = 8 << 20

// NodeScanSummary summarizes the findings of the host scanner on a node.
type NodeScanSummary struct {
	NodeID   string         `json:"node_id"`
	Host     string         `json:"host"`      // as the machine calls itself
	Scanner  string         `json:"scanner"`   // name of the program
	Version  string         `json:"version"`   // of the program
	Database time.Time      `json:"database"`  // build time of the vulnerability database; zero: none
	LastScan time.Time      `json:"last_scan"` // start of the last full scan; zero: there was none
	Partial  bool           `json:"partial"`   // that scan could not read everything
	Scanned  time.Time      `json:"scanned"`   // when this was so
	Received time.Time      `json:"received"`  // when the controller took it
	Counts   NodeScanCounts `json:"counts"`
}

// NodeScanCounts counts all findings on a node, including those that a limit left out.
type NodeScanCounts struct {
	ScanCounts
	Exploited int `json:"exploited"` // vulnerabilities that are known exploited
}

// NodeScan is the scan results of a node's host scanner (PUT and GET /api/v1/node/scan).
type NodeScan struct {
	NodeScanSummary
	Vulnerabilities []HostVulnerability `json:"vulnerabilities"`
	Packages        []HostPackage       `json:"packages"`
	LeftOut         NodeScanTruncated   `json:"left_out"` // what exceeded the size of a report
}

// NodeScanTruncated is how much is not in the lists, so that they fit MaxNodeScan.
type NodeScanTruncated struct {
	Vulnerabilities int `json:"vulnerabilities"` // number that was left out
	Packages        int `json:"packages"`        // number that was left out
}

// PathNodeScanInstances is the route with the instances that ran on a node while it had findings.
const PathNodeScanInstances = "/api/v1/node/scan/instances"

// MaxExposedInstances is how many instances such a list has.
const MaxExposedInstances = 1000

// NodeExposure are the instances that ran on a node when a vulnerability was known of it, or later. Instances that
// ended are listed as long as the controller keeps their history: a day at most.
type NodeExposure struct {
	NodeID     string            `json:"node_id"`
	Scanned    time.Time         `json:"scanned"`     // of the findings
	Findings   int               `json:"findings"`    // those that the request selects
	FirstKnown *time.Time        `json:"first_known"` // of them; null: there is none, or its time is not known
	Truncated  bool              `json:"truncated"`   // the node has more findings than it sent
	Instances  []ExposedInstance `json:"instances"`   // the newest first
	LeftOut    int               `json:"left_out"`    // older instances that are not in the list
}

// ExposedInstance is an instance that ran on a node while vulnerabilities were known of it.
type ExposedInstance struct {
	InstanceID string     `json:"instance_id"`
	Name       string     `json:"name"`
	ExternalID string     `json:"external_id"`
	State      string     `json:"state"`
	TemplateID string     `json:"template_id"`
	Tag        string     `json:"tag"`
	Placed     time.Time  `json:"placed"`   // on the node
	Finished   *time.Time `json:"finished"` // null: not yet
	// Counts are the findings known of the node before it finished.
	Counts ExposedCounts `json:"counts"`
}

// ExposedCounts counts findings.
type ExposedCounts struct {
	Critical  int `json:"critical"`
	High      int `json:"high"`
	Medium    int `json:"medium"`
	Low       int `json:"low"`
	Unknown   int `json:"unknown"`   // without a score
	Exploited int `json:"exploited"` // known exploited, of all severities
}
