package controllerrest

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestHostileReportOfANode: a report of nothing but empty elements takes little more memory than its size, and the
// elements of a useful one are all found.
func TestHostileReportOfANode(t *testing.T) {
	hostile := json.RawMessage("[{}" + strings.Repeat(",{}", api.MaxNodeScan/3-2) + "]")
	for name, read := range map[string]func() int{
		"stored":  func() int { return len(foundOnNode(hostile)) },
		"exposed": func() int { found, _ := knownOnNode(hostile, nil); return len(found) },
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		if n := read(); n != 0 {
			t.Errorf("%s: %d findings", name, n)
		}
		runtime.ReadMemStats(&after)
		if grown := after.HeapSys - min(before.HeapSys, after.HeapSys); grown > 64<<20 {
			t.Errorf("%s: the heap grew by %d MiB", name, grown>>20)
		}
	}
	useful := json.RawMessage(`[{"Vulnerability":{"ID":"CVE-2026-1","Severity":"high","FixedVersions":["2","3"],
		"RelatedVulnerabilities":[{"ID":"GHSA-1"},{"ID":"CVE-2026-1"}]},"Package":{"Name":"a","Version":"1"}},
		{"Vulnerability":{"ID":"CVE-2026-2"}}]`)
	found := foundOnNode(useful)
	if len(found) != 2 || found[0].Fixed != "2" || len(found[0].Aliases) != 1 || found[1].ID != "CVE-2026-2" {
		t.Errorf("%+v", found)
	}
	if hit, _ := knownOnNode(useful, []string{"ghsa-1"}); len(hit) != 1 || hit[0].Severity != "high" {
		t.Errorf("%+v", hit)
	}
	for _, other := range []string{"", "null", "[1]", `[{"Vulnerability":1}]`, `{"a":{}}`} {
		if found := foundOnNode(json.RawMessage(other)); found != nil {
			t.Errorf("%s: %+v", other, found)
		}
	}
}
