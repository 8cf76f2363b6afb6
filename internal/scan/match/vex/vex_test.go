package vex_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/match/vex"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "doc.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func finding(id, purl string, related ...string) *match.Finding {
	return &match.Finding{
		Vulnerability: vulndb.Vulnerability{ID: id, Related: related}, Advisory: id,
		Package: catalog.Package{PURL: purl, CPEs: []string{"cpe:2.3:a:v:p:1.0:*:*:*:*:*:*:*"}},
	}
}

const openVEX = `{
  "@context": "https://openvex.dev/ns/v0.2.0", "@id": "https://example.test/vex-1", "author": "A", "timestamp": "2024-01-01T00:00:00Z", "version": 1,
  "statements": [
    {"vulnerability": {"name": "CVE-2024-1", "aliases": ["GHSA-1"]}, "products": [{"@id": "pkg:npm/%40s/p@1.0.0"}], "status": "not_affected", "justification": "vulnerable_code_not_present"},
    {"vulnerability": {"name": "CVE-2024-2"}, "products": [{"@id": "pkg:npm/p"}], "status": "fixed"},
    {"vulnerability": {"name": "CVE-2024-3"}, "products": [{"@id": "pkg:npm/p"}], "status": "under_investigation"},
    {"vulnerability": {"name": "CVE-2024-4"}, "products": [{"@id": "pkg:npm/p"}], "status": "not_affected", "timestamp": "2024-01-02T00:00:00Z"},
    {"vulnerability": {"name": "CVE-2024-4"}, "products": [{"@id": "pkg:npm/p"}], "status": "affected", "timestamp": "2024-01-03T00:00:00Z"},
    {"vulnerability": {"name": "CVE-2024-5"}, "products": [{"@id": "https://example.test/image", "subcomponents": [{"@id": "pkg:golang/example.test/m@v1.0.0"}]}], "status": "not_affected"},
    {"vulnerability": {"@id": "https://nvd.nist.gov/vuln/detail/CVE-2024-6"}, "products": [{"identifiers": {"cpe23": "cpe:2.3:a:v:p:1.0:*:*:*:*:*:*:*"}}], "status": "fixed"},
    {"vulnerability": {"name": "CVE-2024-7"}, "products": [{"@id": "https://example.test/image"}], "status": "not_affected"}
  ]}`

const cycloneDX = `{
  "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
  "components": [{"type": "library", "bom-ref": "a", "name": "p", "purl": "pkg:npm/p@1.0.0", "components": [{"type": "library", "bom-ref": "b", "name": "q", "purl": "pkg:npm/q@1.0.0"}]}],
  "vulnerabilities": [
    {"id": "CVE-2024-1", "analysis": {"state": "not_affected"}, "affects": [{"ref": "a"}]},
    {"id": "GHSA-2", "references": [{"id": "CVE-2024-2"}], "analysis": {"state": "false_positive"}, "affects": [{"ref": "b"}]},
    {"id": "CVE-2024-3", "analysis": {"state": "exploitable"}, "affects": [{"ref": "a"}]},
    {"id": "CVE-2024-4", "analysis": {"state": "resolved"}, "affects": [{"ref": "urn:cdx:3e671687-395b-41f5-a30f-a58921a69b79/1#pkg%3Anpm%2Fp%401.0.0"}]},
    {"id": "CVE-2024-5", "analysis": {"state": "resolved"}, "affects": [{"ref": "a", "versions": [{"version": "2.0.0"}, {"range": "vers:npm/*"}]}]},
    {"id": "CVE-2024-6", "affects": [{"ref": "a"}]},
    {"id": "CVE-2024-7", "analysis": {"state": "resolved"}, "affects": [{"ref": "nowhere"}]},
    {"id": "CVE-2024-8", "analysis": {"state": "not_affected", "lastUpdated": "2024-01-01T00:00:00Z"}, "affects": [{"ref": "a"}]},
    {"id": "CVE-2024-8", "analysis": {"state": "resolved", "lastUpdated": "2024-01-02T00:00:00Z"}, "affects": [{"ref": "a", "versions": [
      {"version": "1.0.0", "status": "affected"}, {"version": "1.0.1", "status": "unaffected"}, {"version": "1.0.2", "status": "unknown"}]}]}
  ]}`

func TestDismisses(t *testing.T) {
	tests := []struct {
		doc, id, purl, want string
	}{
		{openVEX, "CVE-2024-1", "pkg:npm/%40s/p@1.0.0", "not_affected"},
		{openVEX, "GHSA-1", "pkg:npm/%40s/p@1.0.0", "not_affected"},
		{openVEX, "CVE-2024-1", "pkg:npm/%40s/p@1.0.1", ""},
		{openVEX, "CVE-2024-1", "pkg:npm/p@1.0.0", ""},
		{openVEX, "CVE-2024-1", "", ""},
		{openVEX, "CVE-2024-2", "pkg:npm/p@7.0.0", "fixed"},
		{openVEX, "CVE-2024-2", "pkg:pypi/p@7.0.0", ""},
		{openVEX, "CVE-2024-3", "pkg:npm/p@1.0.0", ""},
		{openVEX, "CVE-2024-4", "pkg:npm/p@1.0.0", ""},
		{openVEX, "CVE-2024-5", "pkg:golang/example.test/m@v1.0.0", "not_affected"},
		{openVEX, "CVE-2024-5", "pkg:golang/example.test/m@1.0.0", "not_affected"},
		{openVEX, "CVE-2024-6", "pkg:npm/x@1", "fixed"},
		{openVEX, "CVE-2024-7", "pkg:npm/x@1", ""},
		{cycloneDX, "CVE-2024-1", "pkg:npm/p@1.0.0", "not_affected"},
		{cycloneDX, "CVE-2024-1", "pkg:npm/p@1.0.1", ""},
		{cycloneDX, "CVE-2024-2", "pkg:npm/q@1.0.0", "false_positive"},
		{cycloneDX, "CVE-2024-3", "pkg:npm/p@1.0.0", ""},
		{cycloneDX, "CVE-2024-4", "pkg:npm/p@1.0.0", "resolved"},
		{cycloneDX, "CVE-2024-5", "pkg:npm/p@1.0.0", ""},
		{cycloneDX, "CVE-2024-5", "pkg:npm/p@2.0.0", "resolved"},
		{cycloneDX, "CVE-2024-6", "pkg:npm/p@1.0.0", ""},
		{cycloneDX, "CVE-2024-7", "pkg:npm/p@1.0.0", ""},
		{cycloneDX, "CVE-2024-8", "pkg:npm/p@1.0.0", ""},
		{cycloneDX, "CVE-2024-8", "pkg:npm/p@1.0.1", "resolved"},
		{cycloneDX, "CVE-2024-8", "pkg:npm/p@1.0.2", ""},
	}
	for _, tt := range tests {
		s, err := vex.Load(t.Context(), write(t, tt.doc))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := s.Suppresses(finding(tt.id, tt.purl)); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s of %s: got %q, want %q", tt.id, tt.purl, got, tt.want)
		}
	}
	s, err := vex.Load(t.Context(), write(t, openVEX), write(t, cycloneDX))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Suppresses(finding("RUSTSEC-1", "pkg:npm/%40s/p@1.0.0", "GHSA-1")); !ok {
		t.Error("another name of the vulnerability is not known")
	}
}

func TestForms(t *testing.T) {
	for _, bad := range []string{"", "{}", "[]", `{"@context": "https://example.test"}`, `{"bomFormat": "SPDX"}`} {
		if _, err := vex.Load(t.Context(), write(t, bad)); !errors.Is(err, vex.ErrUnknownFormat) ||
			!strings.Contains(err.Error(), "doc.json") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	for _, bad := range []string{
		`{"bomFormat": "CycloneDX", "vulnerabilities": 1}`,
		`{"@context": "https://openvex.dev/ns/v0.2.0", "statements": 1}`,
	} {
		if _, err := vex.Load(t.Context(), write(t, bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := vex.Load(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestBounded: endless input is refused, and not read indefinitely.
func TestBounded(t *testing.T) {
	if _, err := vex.Load(t.Context(), "/dev/zero"); err == nil ||
		!strings.Contains(err.Error(), "has more than 64 MiB") {
		t.Errorf("got %v", err)
	}
}

// FuzzLoad looks for documents that crash the program.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(openVEX))
	f.Add([]byte(cycloneDX))
	path := filepath.Join(f.TempDir(), "doc.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := vex.Load(t.Context(), path); err == nil {
			s.Suppresses(finding("CVE-2024-1", "pkg:npm/p@1.0.0"))
		}
	})
}
