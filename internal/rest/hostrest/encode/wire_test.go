package encode

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// TestVulnerability: what NVD says has its CPE in parts, and what is empty is as clients know it.
func TestVulnerability(t *testing.T) {
	f := host.Finding{PackageID: 12, FoundAt: time.Unix(0, 5), Finding: match.Finding{
		Source: vulndb.NVD, CPE: `cpe:2.3:a:some\!one:sn\:ake:0.1.8:rc1:*:*:-:node.js:*:*`, Version: "0.1.8",
		Constraint: "= 0.1.8", Type: match.MatchTypeSemantic,
		Vulnerability: vulndb.Vulnerability{ID: "CVE-2026-1"},
		Package:       catalog.Package{Kind: catalog.Brew, Name: "snake", Version: "0.1.8"},
	}}
	raw, err := json.Marshal(Vulnerability(f))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"Part":"a","Vendor":"some\\!one","Product":"sn\\:ake","Version":"0\\.1\\.8","Update":"rc1","Edition":"","SWEdition":"-","TargetSW":"node\\.js"`,
		`"Constraint":"= 0.1.8"`, `"Namespace":"nvd:cpe"`, `"RelatedVulnerabilities":null`, `"Score":0`,
		`"Severity":"unknown"`, `"ID":"12"`, `"Locations":[]`, `"Licenses":[]`,
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("no %s in %s", want, raw)
		}
	}
	if got := toCPE("nonsense"); got.Part != "" {
		t.Errorf("%+v", got)
	}
}

// TestStatus: lists are there when there is nothing in them.
func TestStatus(t *testing.T) {
	raw, err := json.Marshal(Status(host.Status{State: host.Idle, LastScan: &host.ScanResult{}}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"state":"Idle",`, `"since":null`, `"reset":null`, `"progress":null`, `"first_unread":[]`, `"mounts":[]`,
		`"warnings":[]`, `"built":null`,
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("no %s in %s", want, raw)
		}
	}
}
