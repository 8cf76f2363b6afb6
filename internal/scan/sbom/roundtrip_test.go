package sbom_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/report"
	"github.com/buildyard/buildyard/internal/scan/sbom"
)

// TestRoundTrip: packages of every kind are the same ones after a report in each format.
func TestRoundTrip(t *testing.T) {
	names := map[catalog.PackageType]string{
		catalog.NPM: "@babel/core", catalog.Java: "org.yaml:snakeyaml", catalog.Go: "github.com/BurntSushi/toml",
		catalog.Swift: "github.com/Apple/swift-nio", catalog.System: "macOS", catalog.MacOSPkg: "com.apple.pkg.Xcode",
		catalog.Runtime: "openjdk", catalog.Brew: "openssl@3",
	}
	var all []catalog.Package
	for _, kind := range append(slices.Clone(catalog.Kinds), catalog.System) {
		name := names[kind]
		if name == "" {
			name = "Some.name"
		}
		p := catalog.Package{Kind: kind, Name: name, Version: "1.2.3", Locations: []string{"/a/b"}}
		if kind == catalog.MacOSApp {
			p.BundleIDs = []string{"org.example.name"}
		}
		if kind.IsOS() {
			p.Distribution, p.Arch = "debian:12", "all"
		}
		all = append(all, p)
	}
	want := catalog.Merge(all)
	for _, format := range []report.Format{report.CycloneDX, report.SPDX} {
		r := report.Report{Source: api.ScanSource{Type: "directory", Target: "x"}, Packages: report.Packages(want)}
		var out bytes.Buffer
		o := report.Options{Tool: "imagescan", Version: "1.0"}
		if err := report.Write(&out, format, []report.Report{r}, o); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "bom.json")
		if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := sbom.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		got := catalog.Merge(c.Packages)
		if format == report.SPDX { // which has no field for them
			for i := range got {
				got[i].BundleIDs = want[i].BundleIDs
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || len(c.Omitted) > 0 || c.Incomplete {
			t.Errorf("%s: want -, got +\n%s\n%v", format, diff, c.Omitted)
		}
	}
}
