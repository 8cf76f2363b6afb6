package portal_test

import (
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// TestAffected: the page lists the version and the instance that a vulnerability affects, and the search leads to it.
func TestAffected(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.join("mac", 1)
	id := w.start(client.StartRequest{TemplateID: debian, Name: "needle"})[0]
	detail, err := w.API.Template(t.Context(), debian)
	if err != nil {
		t.Fatal(err)
	}
	last := detail.Versions[len(detail.Versions)-1]
	if err := w.API.PutVersionFindings(t.Context(), api.VersionFindings{
		TemplateID: debian, Tag: last.Tag, ContentID: last.ContentID, Database: time.Now(),
		Vulnerabilities: []api.FoundVulnerability{{
			ID: "CVE-2026-1", Aliases: []string{"GHSA-aaaa-bbbb-cccc"}, Package: strings.ReplaceAll(hostile, "\n", ""),
			Version: "1", Fixed: "2.7.1", Severity: "critical",
		}}, Partial: true, Truncated: true,
	}); err != nil {
		t.Fatal(err)
	}
	w.get("/affected").has(200, "What no scan reported is not listed.", "!Instances of")
	for _, one := range []string{"CVE-2026-1", "ghsa-aaaa-bbbb-cccc", "x,CVE-2026-1"} {
		w.get("/affected?q="+one).has(200, `href="/templates/`+debian+`"`, `href="/instances/`+id+`"`, "2.7.1", "critical",
			"(partial scan, list truncated)",
			"versions scanned in part: 1, versions with a truncated list: 1.",
			"!<script>alert")
	}
	if err := w.API.RevertTemplate(t.Context(), debian, client.Version{Tag: last.Tag}); err != nil {
		t.Fatal(err)
	}
	w.get("/affected?q=CVE-2026-1").has(200, "(removed, partial scan, list truncated)")
	w.push(spare, "unscanned")
	w.start(client.StartRequest{TemplateID: spare, Name: "unscanned"})
	w.get("/affected?q=CVE-2026-2").has(200,
		"More may be affected: versions in use without a scan: 1, instances of such versions: 1")
	w.get("/affected?q=CVE-2026-2").has(200, "None.", `!href="/instances/`+id+`"`)
	w.get("/search?q=cve-2026-1").has(200, `href="/affected?q=cve-2026-1"`)
}
