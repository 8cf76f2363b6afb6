package report

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	spdxjson "github.com/spdx/tools-golang/json"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/sanitize"
	"github.com/buildyard/buildyard/internal/scan/catalog"
)

func pack(kind, name, version string, paths ...string) api.ScanPackage {
	p := api.ScanPackage{
		Type: kind, Name: name, Version: version, Language: "javascript", Licenses: []string{},
		CPEs:      []string{"cpe:2.3:a:" + name + ":" + name + ":" + version + ":*:*:*:*:*:*:*"},
		PURL:      "pkg:" + kind + "/" + name + "@" + version,
		Locations: []api.ScanLocation{},
	}
	for _, path := range paths {
		p.Locations = append(p.Locations, api.ScanLocation{Path: path})
	}
	return p
}

func matchOf(p api.ScanPackage, id string, score float64, severity string) api.ScanMatch {
	return api.ScanMatch{
		Vulnerability: api.ScanVulnerability{ID: id, BaseScore: score, Severity: severity, URL: "https://nvd.example/" +
			id, Related: []string{"GHSA-x"}, FixedVersions: []string{"4.17.12"}, EPSS: 0.125},
		MatchDetails: []api.ScanDetail{
			{CPE: p.CPEs[0], Version: p.Version, Constraint: "< 4.17.12", Type: "Semantic"},
		},
		Artifact: p,
	}
}

// sample has a package at two paths, and one whose name has terminal control characters.
func sample() Report {
	lodash := pack("npm", "lodash", "4.17.11", "/a/package.json", "/b/package.json")
	odd := pack("npm", "odd\x1b[2J\tname", "1", "/odd")
	at := func(i int) api.ScanPackage {
		p := lodash
		p.Locations = lodash.Locations[i : i+1]
		return p
	}
	return Report{
		Source:   api.ScanSource{Type: "dir", Target: "/srv"},
		Packages: []api.ScanPackage{lodash, odd},
		Matches: []api.ScanMatch{matchOf(at(0), "CVE-2019-10744", 9.1, "critical"), matchOf(at(1), "CVE-2019-10744",
			9.1, "critical"), matchOf(odd, "GHSA-1", 0, "unknown")},
		Coverage: api.ScanCoverage{
			Volumes: []api.ScanVolume{}, Skipped: []api.ScanSkipped{},
			Unread: []api.ScanUnreadable{}, Hidden: map[string]int{},
		},
	}
}

var options = Options{Tool: "imagescan", Version: "1.0", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}

func write(t *testing.T, f Format, o Options, reports ...Report) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, f, reports, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTables(t *testing.T) {
	none := sample()
	none.Matches = nil
	packages := sample()
	packages.OnlyPackages = true
	empty := Report{OnlyPackages: true}
	all, err := ParseColumns("VnvtSsfkel")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		r       Report
		columns []Column
		want    string
	}{
		"matches at two places are one row": {sample(), nil, "" +
			"TYPE  NAME           VERSION  VULNERABILITY   SCORE  SEVERITY\n" +
			"npm   lodash         4.17.11  CVE-2019-10744  9.1    critical\n" +
			"npm   odd?[2J?name   1        GHSA-1          -      unknown\n"},
		"but for their places": {sample(), all, "" +
			"VULNERABILITY   NAME           VERSION  TYPE  SEVERITY  SCORE  FIXED    KEV  EPSS   LOCATION\n" +
			"CVE-2019-10744  lodash         4.17.11  npm   critical  9.1    4.17.12  -    12.5%  /a/package.json\n" +
			"CVE-2019-10744  lodash         4.17.11  npm   critical  9.1    4.17.12  -    12.5%  /b/package.json\n" +
			"GHSA-1          odd?[2J?name   1        npm   unknown   -      4.17.12  -    12.5%  /odd\n"},
		"packages": {
			packages, nil, "TYPE  NAME           VERSION\nnpm   lodash         4.17.11\nnpm   odd?[2J?name   1\n",
		},
		"nothing found":   {none, nil, "No vulnerabilities found\n"},
		"nothing in here": {empty, nil, "No packages found\n"},
	} {
		o := options
		o.Columns = tc.columns
		if diff := cmp.Diff(squeeze(tc.want), squeeze(write(t, Table, o, tc.r))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// squeeze removes the padding of a table.
func squeeze(s string) []string {
	var out []string
	for line := range strings.Lines(s) {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return out
}

func TestColumns(t *testing.T) {
	for letters, says := range map[string]string{"x": `column "x"`, "tt": "twice"} {
		if _, err := ParseColumns(letters); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", letters, err)
		}
	}
}

func TestJSONHasTheShapeOfTheSpecification(t *testing.T) {
	var got map[string]any
	text := write(t, JSON, options, sample())
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	first := got["matches"].([]any)[0].(map[string]any)
	artifact := first["artifact"].(map[string]any)
	for _, field := range []string{
		"name", "version", "type", "locations", "language", "licenses", "cpes", "purl", "metadata",
	} {
		if _, ok := artifact[field]; !ok {
			t.Errorf("the artifact has no %s", field)
		}
	}
	if artifact["metadata"] != nil || len(artifact["licenses"].([]any)) != 0 {
		t.Errorf("metadata %v, licenses %v", artifact["metadata"], artifact["licenses"])
	}
	want := map[string]any{
		"matched-cpe": "cpe:2.3:a:lodash:lodash:4.17.11:*:*:*:*:*:*:*", "matched-version": "4.17.11",
		"matched-constraint": "< 4.17.12", "match-type": "Semantic",
	}
	if diff := cmp.Diff(want, first["matchDetails"].([]any)[0]); diff != "" {
		t.Error(diff)
	}
	vulnerability := first["vulnerability"].(map[string]any)
	if vulnerability["id"] != "CVE-2019-10744" || vulnerability["base-score"] != 9.1 ||
		vulnerability["severity"] != "critical" {
		t.Errorf("vulnerability %v", vulnerability)
	}
	if diff := cmp.Diff(map[string]any{"type": "dir", "target": "/srv"}, got["source"]); diff != "" {
		t.Error(diff)
	}
	if text := write(t, JSON, options, Report{}); !strings.Contains(text, `"matches": []`) {
		t.Errorf("a report of nothing: %s", text)
	}
	if text := write(t, JSON, Options{WholeRegistry: true}, sample()); !strings.Contains(text, `"reports": [`) ||
		!strings.Contains(text, `"target": "*"`) {
		t.Errorf("all of a registry that has one: %s", text)
	}
}

func TestSARIFIsValid(t *testing.T) {
	doc, err := sarif.FromString(write(t, SARIF, options, sample(), Report{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(); err != nil {
		t.Error(err)
	}
	if n := len(doc.Runs[0].Tool.Driver.Rules); n != 2 || len(doc.Runs[0].Results) != 3 {
		t.Errorf("%d rules, %d results", n, len(doc.Runs[0].Results))
	}
}

func TestCycloneDXAndSPDXAreRead(t *testing.T) {
	bom := new(cdx.BOM)
	if err := cdx.NewBOMDecoder(strings.NewReader(write(t, CycloneDX, options, sample())),
		cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	vulnerabilities := *bom.Vulnerabilities
	if len(*bom.Components) != 2 || len(vulnerabilities) != 2 || len(*vulnerabilities[0].Affects) != 1 ||
		(*vulnerabilities[0].Affects)[0].Ref != "npm:lodash@4.17.11" {
		t.Errorf("components %v, vulnerabilities %v", bom.Components, vulnerabilities)
	}
	doc, err := spdxjson.Read(strings.NewReader(write(t, SPDX, options, sample())))
	if err != nil {
		t.Fatal(err)
	}
	if len(doc.Packages) != 2 || len(doc.Packages[0].PackageExternalReferences) != 3 {
		t.Errorf("packages %v", doc.Packages)
	}
	for _, f := range []Format{CycloneDX, SPDX, GitLab} {
		if err := Write(new(bytes.Buffer), f, []Report{sample(), sample()}, options); err == nil ||
			!strings.Contains(err.Error(), "one by one") {
			t.Errorf("%s of two: %v", f, err)
		}
	}
}

func TestDiff(t *testing.T) {
	from, to := sample(), sample()
	fixed := pack("npm", "lodash", "4.17.12", "/a/package.json")
	to.Packages = []api.ScanPackage{fixed, to.Packages[1]}
	to.Matches = append(to.Matches[2:], matchOf(to.Packages[1], "CVE-2020-1", 5, "medium"))
	d := Diff(from, to)
	if len(d.AddedPackages) != 1 || d.AddedPackages[0].Version != "4.17.12" || len(d.RemovedPackages) != 1 {
		t.Errorf("packages: added %v, removed %v", d.AddedPackages, d.RemovedPackages)
	}
	if len(d.AddedMatches) != 1 || d.AddedMatches[0].Vulnerability.ID != "CVE-2020-1" || len(d.RemovedMatches) != 1 {
		t.Errorf("matches: added %v, removed %v", d.AddedMatches, d.RemovedMatches)
	}
	if same := Diff(from, from); len(same.AddedMatches)+len(same.RemovedMatches)+len(same.AddedPackages)+
		len(same.RemovedPackages) != 0 {
		t.Errorf("a report differs from itself: %v", same)
	}
}

// TestNothingSteersTheTerminal: names in reports come from untrusted disks.
func TestNothingSteersTheTerminal(t *testing.T) {
	const evil = "a\u0085\u009b1m\x7f\u202e\u2066\x1b[2J"
	p := pack("npm", evil, evil, "/"+evil)
	r := Report{
		Source: api.ScanSource{Type: "dir", Target: evil}, Packages: []api.ScanPackage{p},
		Matches: []api.ScanMatch{matchOf(p, "CVE-2019-1", 9.1, "critical")},
	}
	r.Coverage.Unread = []api.ScanUnreadable{{Path: evil, Reason: evil}}
	options := options
	var err error
	names := "{{range .Reports}}{{range .Matches}}{{.Artifact.Name}}{{end}}{{end}}"
	if options.Template, err = ParseTemplate(names); err != nil {
		t.Fatal(err)
	}
	for _, f := range Formats {
		out := write(t, f, options, r)
		if !sanitize.IsClean(out) {
			t.Errorf("%s: %q", f, out)
		}
		if textWriters[f] == nil && !strings.Contains(out, `\u009b1m\u007f\u202e\u2066\u001b[2J`) {
			t.Errorf("%s does not say what the name is: %s", f, out)
		}
	}
	var back api.ScanReport
	if err := json.Unmarshal([]byte(write(t, JSON, options, r)), &back); err != nil ||
		back.Matches[0].Artifact.Name != evil {
		t.Errorf("it means %+v, %v", back, err)
	}
}

// TestOrigin: packages that differ in their architecture or owner are separate in every format, and each says
// where it is from.
func TestOrigin(t *testing.T) {
	base := catalog.Package{
		Kind: catalog.Deb, Name: "libc6", Version: "2.36-9", Arch: "amd64", Distribution: "debian:12",
		Source: "glibc", SourceVersion: "2.36-8", Locations: []string{"/var/lib/dpkg/status"},
	}
	i386 := base
	i386.Arch = "i386"
	owned := catalog.Package{
		Kind: catalog.Python, Name: "six", Version: "1.16.0", Distribution: "debian:12",
		Owner: "deb/python3-six@1.16.0-4", Locations: []string{"/usr/lib/python3/dist-packages/six.egg-info/PKG-INFO"},
	}
	free := owned
	free.Distribution, free.Owner = "", ""
	r := sample()
	r.Matches, r.Packages = nil, Packages([]catalog.Package{base, i386, owned, free})
	want := &api.ScanPackageMetadata{
		Distribution: "debian:12", Source: "glibc", SourceVersion: "2.36-8", Arch: "amd64",
	}
	if diff := cmp.Diff(want, r.Packages[0].Metadata); diff != "" || r.Packages[3].Metadata != nil {
		t.Errorf("%s %+v", diff, r.Packages[3].Metadata)
	}
	r.OnlyPackages = true
	if text := write(t, JSON, options, r); !strings.Contains(text, `"sourceVersion": "2.36-8"`) ||
		strings.Count(text, `"metadata": null`) != 1 {
		t.Error(text)
	}
	bom := new(cdx.BOM)
	if err := cdx.NewBOMDecoder(strings.NewReader(write(t, CycloneDX, options, r)),
		cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	refs := map[string]bool{}
	for _, c := range *bom.Components {
		refs[c.BOMRef] = true
	}
	if properties := *(*bom.Components)[2].Properties; len(refs) != 4 ||
		!slices.Contains(properties, cdx.Property{Name: "buildyard:owner", Value: owned.Owner}) {
		t.Errorf("%v %v", refs, properties)
	}
	if text := write(t, SPDX, options, r); !strings.Contains(text, "built from: glibc 2.36-8") ||
		!strings.Contains(text, "belongs to: deb/python3-six@1.16.0-4") {
		t.Error(text)
	}
}

func TestEPSS(t *testing.T) {
	for value, want := range map[float64]string{
		0: "", 0.00001: "<0.01%", 0.00043: "0.04%", 0.12345: "12.3%", 0.97: "97.0%",
	} {
		if got := formatEPSS(api.ScanMatch{Vulnerability: api.ScanVulnerability{EPSS: value}}); got != want {
			t.Errorf("%v: got %q, want %q", value, got, want)
		}
	}
}
