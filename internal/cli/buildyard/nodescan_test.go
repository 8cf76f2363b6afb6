package buildyard

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// TestScansOfNodesOutliveTheProcess: findings are there again, whole, when controller and registry
// were started again.
func TestScansOfNodesOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	s, stop := startUp(t, dir)
	node, err := s.controller.Nodes.Join(t.Context(),
		api.JoinRequest{
			Protocol: api.LinkProtocol, Token: s.controller.Nodes.JoinToken(), Name: "n", Host: "10.0.0.1",
			Arch: "amd64",
		})
	if err != nil {
		t.Fatal(err)
	}
	at := func(url string) *client.Controller {
		t.Helper()
		c, err := client.NewController(url, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	scan := api.NodeScan{
		NodeScanSummary: api.NodeScanSummary{
			Host: "build-7", Scanner: "hostscan", Version: "1", Scanned: time.Now(),
			Counts: api.NodeScanCounts{ScanCounts: api.ScanCounts{High: 1}},
		},
		Vulnerabilities: []api.HostVulnerability{{Vulnerability: api.HostFinding{ID: "CVE-2026-1"}}},
		Packages:        []api.HostPackage{},
	}
	if err := at(s.URL()).PutNodeScan(t.Context(), node.NodeID, scan); err != nil {
		t.Fatal(err)
	}
	stop()
	s, stop = startUp(t, dir)
	defer stop()
	got, err := at(s.URL()).NodeScan(t.Context(), node.NodeID)
	if err != nil || got.Counts != scan.Counts || len(got.Vulnerabilities) != 1 ||
		got.Vulnerabilities[0].Vulnerability.ID != "CVE-2026-1" {
		t.Errorf("%+v, %v", got, err)
	}
}
