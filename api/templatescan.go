package api

import (
	"encoding/json"
	"time"
)

// ScanSummary summarizes the findings of a scanner in a version of a template.
type ScanSummary struct {
	Scanner  string     `json:"scanner"`  // name of the program
	Version  string     `json:"version"`  // of the program
	Database time.Time  `json:"database"` // when its vulnerability database was built
	Scanned  time.Time  `json:"scanned"`
	Partial  bool       `json:"partial"` // not everything could be read
	Counts   ScanCounts `json:"counts"`
}

// ScanCounts is how many vulnerabilities of each severity, and how many packages, a scanner found.
type ScanCounts struct {
	Critical int `json:"critical"`
	High     int `json:"high"`
	Medium   int `json:"medium"`
	Low      int `json:"low"`
	Unknown  int `json:"unknown"` // without a score
	Packages int `json:"packages"`
}

// TemplateScan is the scan results of a version of a template (PUT and GET /registry/v2/vm/scan).
type TemplateScan struct {
	ScanSummary
	// ContentID names the scanned content. A PUT with another content than the version's is refused; "" accepts
	// any.
	ContentID string          `json:"content_id,omitempty"` // of the scanned version
	Report    json.RawMessage `json:"report"`               // the scanner's own report, a JSON object
}
