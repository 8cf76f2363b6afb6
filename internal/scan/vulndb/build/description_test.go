package build_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
)

// TestDescriptions: the title is that of an advisory, the text that of NVD, and references are those of all. What no
// package may have is not described.
func TestDescriptions(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"GHSA-jf85-cpcp-j695.json": `{"schema_version": "1.4.0", "id": "GHSA-jf85-cpcp-j695", "aliases": ["CVE-2019-10744"],
			"modified": "2023-01-09T05:02:38Z", "summary": "Prototype Pollution in lodash", "details": "Long **text**.",
			"references": [{"type": "WEB", "url": "https://b.example/1"}, {"url": 5}], "affected": [{"package":
			{"ecosystem": "npm", "name": "lodash"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}]}]}`,
		"GHSA-aaaa-bbbb-cccc.json": `{"schema_version": "1.4.0", "id": "GHSA-aaaa-bbbb-cccc",
			"modified": "2023-01-09T05:02:38Z", "summary": "No CVE yet", "references": 7, "affected": [{"package":
			{"ecosystem": "npm", "name": "p"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}]}]}`,
		"nvdcve.json": `{"resultsPerPage": 2, "format": "NVD_CVE", "vulnerabilities": [
			{"cve": {"id": "CVE-2019-10744", "lastModified": "2024-01-01T00:00:00.000", "descriptions": [
			{"lang": "es", "value": "Lo mismo"}, {"lang": "en", "value": "Versions of lodash lower than 4.17.12."}],
			"references": [{"url": "https://a.example/2"}, {"url": "https://b.example/1"}]}},
			{"cve": {"id": "CVE-2000-0001", "lastModified": "2024-01-01T00:00:00.000", "descriptions": [
			{"lang": "en", "value": "Affects nothing that a scan finds."}]}}]}`,
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	target := filepath.Join(t.TempDir(), "db")
	report, err := build.Build(t.Context(), build.Options{Inputs: []string{dir}, Target: target})
	check(t, err)
	for _, s := range report.Sources {
		if len(s.Rejections) > 0 {
			t.Errorf("%s: %v", s.Name, s.Rejections)
		}
	}
	db := open(t, target)
	check(t, db.Verify(t.Context()))
	for _, want := range []vulndb.Description{
		{
			ID: "CVE-2019-10744", Title: "Prototype Pollution in lodash",
			Text:       "Versions of lodash lower than 4.17.12.",
			References: []string{"https://a.example/2", "https://b.example/1"},
		},
		{ID: "GHSA-aaaa-bbbb-cccc", Title: "No CVE yet"},
		{},
	} {
		id := want.ID
		if id == "" {
			id = "CVE-2000-0001"
		}
		got, _, err := db.Description(id)
		check(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
	}
}
