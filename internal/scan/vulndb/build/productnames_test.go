package build_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
)

const zebraRecord = `{"format": "NVD_CVE", "version": "2.0",
 "vulnerabilities": [{"cve": {"id": "CVE-2024-0001", "references": [
 {"url": "https://github.com/Acme/big-zebra/security/advisories/1"}, {"url": "https://github.com/advisories/x"},
 {"url": "https://example.com/other/zebra"}, {"url": "https://gitlab.com/stripes/stripes.git"}, {"url": "::"}],
 "configurations": [{"nodes": [{"operator": "OR", "cpeMatch": [
 {"vulnerable": true, "criteria": "cpe:2.3:a:acme:big_zebra:*:*:*:*:*:go:*:*", "versionEndExcluding": "2"},
 {"vulnerable": true, "criteria": "cpe:2.3:a:acme:big_zebra:*:*:*:*:*:Rust:*:*", "versionEndExcluding": "2"},
 {"vulnerable": true, "criteria": "cpe:2.3:a:other:big_zebra:*:*:*:*:*:wordpress:*:*", "versionEndExcluding": "2"},
 {"vulnerable": true, "criteria": "cpe:2.3:a:maker:stripes:*:*:*:*:*:*:*:*", "versionEndExcluding": "2"},
 {"vulnerable": false, "criteria": "cpe:2.3:a:acme:platform:*:*:*:*:*:go:*:*"}]}]}]}},
 {"cve": {"id": "CVE-2024-0002", "configurations": [{"nodes": [{"operator": "OR", "cpeMatch": [
 {"vulnerable": true, "criteria": "cpe:2.3:a:acme:big_zebra:1.0:*:*:*:*:go:*:*"}]}]}]}}]}`

// The names of products come with what all their vulnerabilities say about them.
func TestNamesOfProducts(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "nvd.json"), []byte(zebraRecord), 0o600))
	target := filepath.Join(t.TempDir(), "db")
	_, err := build.Build(t.Context(), build.Options{Inputs: []string{dir}, Target: target, MaxMemory: 1 << 20})
	check(t, err)
	db := open(t, target)
	for product, want := range map[string][]vulndb.ProductVendor{
		"big_zebra": {
			{Vendor: "acme", OwnRepository: true, Languages: []string{"go", "rust"}}, {Vendor: "other"},
		},
		"stripes":  {{Vendor: "maker", OwnRepository: true}},
		"platform": nil,
	} {
		got, err := db.ProductVendors(product)
		check(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", product, d)
		}
	}
}
