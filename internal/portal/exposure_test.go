package portal_test

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// TestExposure: the page lists the instances that ran on a node while its host scanner knew of vulnerabilities.
func TestExposure(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.join("mac", 1)
	id := w.start(client.StartRequest{TemplateID: debian, Name: "needle"})[0]
	nodes, err := w.API.Nodes(t.Context(), client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	page := "/nodes/" + nodes[0].NodeID
	w.get(page).has(200, "has not reported yet", `!href="`+page+`/exposure"`)
	w.get(page + "/exposure").has(404)
	finding := func(id string, known time.Time) api.HostVulnerability {
		return api.HostVulnerability{Vulnerability: api.HostFinding{ID: id, Severity: "critical", Known: known}}
	}
	if err := w.API.PutNodeScan(t.Context(), nodes[0].NodeID, api.NodeScan{
		NodeScanSummary: api.NodeScanSummary{Host: hostile[:5], Scanner: "hostscan", Version: "1", Scanned: time.Now()},
		Vulnerabilities: []api.HostVulnerability{
			finding("CVE-2026-1", time.Now().Add(-time.Hour)), finding("CVE-2026-2", time.Now().Add(time.Hour)),
		},
		Packages: []api.HostPackage{},
	}); err != nil {
		t.Fatal(err)
	}
	w.get(page).has(200, `href="`+page+`/exposure"`)
	for _, q := range []string{"", "?q=CVE-2026-1", "?q=cve-2026-1,CVE-2026-2"} {
		w.get(page+"/exposure"+q).has(200, `href="/instances/`+id+`"`, "needle")
	}
	w.get(page+"/exposure?q=CVE-2026-2").has(200, "1 finding", "None.", `!href="/instances/`+id+`"`)
	w.get(page+"/exposure?q=CVE-2026-3").has(200, "0 findings", "None.")
	w.get("/nodes/none/exposure").has(404)
}
