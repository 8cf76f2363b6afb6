package feed

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// records reads all records of a path, by feed and id.
func records(t testing.TB, path string) (map[string]Record, FileCounts, []Rejection) {
	t.Helper()
	out := map[string]Record{}
	var bad []Rejection
	n, err := Read(t.Context(), path, func(it Item) error {
		for _, r := range it.Parse() {
			out[r.Feed+" "+r.ID] = r
		}
		return nil
	}, func(r Rejection) { bad = append(bad, r) })
	check(t, err)
	return out, n, bad
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s:\n%s", what, d)
	}
}

func reasons(r Record) string {
	var list []string
	for _, x := range r.Rejected {
		list = append(list, x.Reason)
	}
	return strings.Join(list, "; ")
}

func fixtures(t *testing.T) map[string]Record {
	t.Helper()
	all, _, bad := records(t, "testdata")
	if len(bad) > 0 {
		t.Errorf("bad files: %v", bad)
	}
	return all
}

func TestGo(t *testing.T) {
	all := fixtures(t)
	r := all["go GO-2024-9001"]
	cves, related := []string{"CVE-2024-90011", "CVE-2024-90012"}, []string{"GHSA-aaaa-bbbb-cccc"}
	page := "https://pkg.go.dev/vuln/GO-2024-9001"
	diff(t, "advisories", []vulndb.Advisory{
		{
			ID: "GO-2024-9001", Source: vulndb.GoVuln, CVEs: cves, Related: related, Ecosystem: vulndb.Go,
			Name: "stdlib", URL: page,
			Ranges: []vulndb.Range{{Fixed: "1.21.9"}, {Introduced: "1.22.0-0", Fixed: "1.22.2"}},
		},
		{
			ID: "GO-2024-9001", Source: vulndb.GoVuln, CVEs: cves, Related: related, Ecosystem: vulndb.Go,
			Name: "example.org/mod", URL: page,
			Ranges: []vulndb.Range{{}}, Unconfirmed: true,
		},
	}, r.Advisories)
	if len(r.Vulnerabilities) != 2 || r.Vulnerabilities[1].ID != "CVE-2024-90012" ||
		!slices.Equal(r.Vulnerabilities[1].Related, []string{"GO-2024-9001"}) {
		t.Errorf("vulnerabilities: %+v", r.Vulnerabilities)
	}
	if r := all["go GO-2024-9002"]; r.Dropped != Withdrawn || len(r.Advisories)+len(r.Vulnerabilities) > 0 {
		t.Errorf("a withdrawn record: %+v", r)
	}
}

func TestGHSA(t *testing.T) {
	all := fixtures(t)
	r := all["ghsa GHSA-aaaa-bbbb-0001"]
	got := map[string]vulndb.Advisory{}
	for _, a := range r.Advisories {
		got[a.Name] = a
	}
	diff(t, "last known affected", []vulndb.Range{{LastAffected: "4.0.0"}}, got["sample-two"].Ranges)
	diff(t, "versions alone", []string{"1.0.0", "1.0.1"}, got["sample-three"].Versions)
	diff(t, "last affected", []vulndb.Range{{Introduced: "2.0", LastAffected: "2.3"}}, got["org.example:sample"].Ranges)
	if len(got) != 3 || reasons(r) != `sample: invalid version "7.2.4, 6.11.4"` {
		t.Errorf("%d packages, rejected: %s", len(got), reasons(r))
	}
	s := r.Vulnerabilities[0].Score
	if s.Base != 9.8 || s.Severity != vulndb.Critical || s.Source != vulndb.GHSA {
		t.Errorf("the vector counts before the word: %+v", s)
	}
	r = all["ghsa GHSA-aaaa-bbbb-0002"]
	if r.Dropped != OtherEcosystem || len(r.Vulnerabilities) != 2 || r.Vulnerabilities[1].ID != "RUSTSEC-2024-9001" ||
		r.Vulnerabilities[1].Score.Severity != vulndb.Medium {
		t.Errorf("without a CVE: %+v", r)
	}
}

// TestEventsOutOfOrder: events are in order of their versions, whichever is written first.
func TestEventsOutOfOrder(t *testing.T) {
	for _, c := range []struct {
		ecosystem vulndb.Ecosystem
		events    string
		want      []vulndb.Range
	}{
		{vulndb.NPM, `{"fixed": "2.0.0"}, {"introduced": "0"}`, []vulndb.Range{{Fixed: "2.0.0"}}},
		{
			vulndb.PyPI, `{"last_affected": "10.0"}, {"introduced": "9.0"}`,
			[]vulndb.Range{{Introduced: "9.0", LastAffected: "10.0"}},
		},
		{
			vulndb.PyPI, `{"last_affected": "9.0"}, {"introduced": "9.0"}`,
			[]vulndb.Range{{Introduced: "9.0", LastAffected: "9.0"}},
		},
		{
			vulndb.PyPI, `{"last_affected": "9.0"}, {"introduced": "9.0"}, {"introduced": "9.5"}`,
			[]vulndb.Range{{Introduced: "9.0", LastAffected: "9.0"}, {Introduced: "9.5"}},
		},
		{
			vulndb.PyPI, `{"introduced": "8.0"}, {"last_affected": "9.0"}, {"introduced": "9.0"}, {"fixed": "9.5"}`,
			[]vulndb.Range{{Introduced: "8.0", LastAffected: "9.0"}, {Introduced: "9.0", Fixed: "9.5"}},
		},
		{
			vulndb.NPM, `{"fixed": "10.0.0"}, {"fixed": "2.0.0"}, {"introduced": "9.0.0"}, {"introduced": "0"}`,
			[]vulndb.Range{{Fixed: "2.0.0"}, {Introduced: "9.0.0", Fixed: "10.0.0"}},
		},
		{vulndb.Homebrew, `{"fixed": "6.0_8"}, {"introduced": "0"}`, []vulndb.Range{{Fixed: "6.0_8"}}},
		{
			vulndb.Homebrew, `{"fixed": "6.0_8"}, {"introduced": "7"}, {"introduced": "0"}, {"fixed": "7.1"}`,
			[]vulndb.Range{{Fixed: "6.0_8"}, {Introduced: "7", Fixed: "7.1"}},
		},
	} {
		text := `{"id": "OSV-1", "affected": [{"package": {"ecosystem": "` + string(c.ecosystem) +
			`", "name": "x"}, "ranges": [{"type": "ECOSYSTEM", "events": [` + c.events + `]}]}]}`
		diff(t, c.events, c.want, Item{Kind: kindOSV, Data: []byte(text)}.Parse()[0].Advisories[0].Ranges)
	}
}

// TestSwiftNames: packages of Swift are named by the address of their repository. Where a record has only the last part
// of it, a reference has the address.
func TestSwiftNames(t *testing.T) {
	const pages = `{"type": "WEB", "url": "https://github.com/apple/other"},
		{"type": "PACKAGE", "url": "https://github.com/apple/swift-crypto/"}`
	for name, want := range map[string]string{
		"github.com/apple/swift-nio":             "github.com/apple/swift-nio",
		"https://github.com/Apple/swift-nio.git": "https://github.com/Apple/swift-nio.git",
		"swift-crypto":                           "github.com/apple/swift-crypto",
		"Swift-Crypto":                           "github.com/apple/swift-crypto",
		"other":                                  "other", // a web page is not a repository
	} {
		text := `{"id": "GHSA-1", "affected": [{"package": {"ecosystem": "SwiftURL", "name": "` + name +
			`"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "4.0.0"}, {"fixed": "4.10.0"}]}]}],
			"references": [` + pages + `]}`
		diff(t, name, []vulndb.Advisory{{
			ID: "GHSA-1", Source: vulndb.GHSA, Ecosystem: vulndb.SwiftURL, Name: want,
			URL: "https://github.com/advisories/GHSA-1", Ranges: []vulndb.Range{{Introduced: "4.0.0", Fixed: "4.10.0"}},
		}}, Item{Kind: kindOSV, Data: []byte(text)}.Parse()[0].Advisories)
	}
	one := vulndb.PackageKey(vulndb.SwiftURL, "https://github.com/Apple/swift-nio.git")
	if other := vulndb.PackageKey(vulndb.SwiftURL, "github.com/apple/swift-nio"); one != other {
		t.Errorf("%q and %q are one package", one, other)
	}
}

func TestPyPA(t *testing.T) {
	all := fixtures(t)
	r := all["pypa PYSEC-2024-9001"]
	if len(r.Advisories) != 1 {
		t.Fatalf("%+v", r)
	}
	diff(t, "ranges", []vulndb.Range{{Fixed: "1.9.1"}, {Introduced: "2.0", Fixed: "2.1.3"}}, r.Advisories[0].Ranges)
	diff(t, "versions", []string{"1.10", "1.9"}, r.Advisories[0].Versions)
	if s := r.Vulnerabilities[0].Score; s.Base != 7.5 || s.Version != "3.0" {
		t.Errorf("score: %+v", s)
	}
	if !r.Modified.Equal(time.Date(2024, 1, 2, 3, 4, 5, 678900000, time.UTC)) {
		t.Errorf("modified %s", r.Modified)
	}
	if all["pypa PYSEC-2024-9002"].Dropped != Withdrawn {
		t.Error("a withdrawn record is taken")
	}
}

func TestRubySec(t *testing.T) {
	all := fixtures(t)
	r := all["rubysec sample/CVE-2024-90301"]
	diff(t, "advisories", []vulndb.Advisory{{
		ID: "CVE-2024-90301", Source: vulndb.RubySec, CVEs: []string{"CVE-2024-90301"},
		Related:   []string{"GHSA-aaaa-bbbb-0301", "OSVDB-123"},
		Ecosystem: vulndb.RubyGems, Name: "sample", URL: "https://rubysec.com/advisories/CVE-2024-90301/",
		Platform: "jruby",
		Ranges:   []vulndb.Range{{Introduced: "1.0", Fixed: "1.2.6.2"}, {Introduced: "1.3.a", Fixed: "2.0.0.pre.rc1"}},
	}}, r.Advisories)
	if s := r.Vulnerabilities[0].Score; s.Base != 7.5 || s.Version != "3.1" || s.Vector != "" {
		t.Errorf("score: %+v", s)
	}
	r = all["rubysec sample/OSVDB-90302"]
	diff(t, "never patched", []vulndb.Range{{}}, r.Advisories[0].Ranges)
	if r.Advisories[0].Unconfirmed || r.Vulnerabilities[0].ID != "OSVDB-90302" {
		t.Errorf("never patched: %+v", r)
	}
	diff(t, "Ruby itself", []vulndb.Advisory{{
		ID: "CVE-2024-90303", Source: vulndb.RubySec, CVEs: []string{"CVE-2024-90303"}, Ecosystem: vulndb.Rubies,
		Name: "ruby", URL: "https://rubysec.com/advisories/CVE-2024-90303/", Ranges: []vulndb.Range{{Fixed: "3.3.1"}},
	}}, all["rubysec engine:ruby/CVE-2024-90303"].Advisories)
}

func TestRustSec(t *testing.T) {
	all := fixtures(t)
	r := all["rustsec RUSTSEC-2024-9001"]
	diff(t, "ranges", []vulndb.Range{{Introduced: "0.3.0", Fixed: "1.7.5"}, {Introduced: "2.0.0-0", Fixed: "2.6.0"}},
		r.Advisories[0].Ranges)
	if v := r.Vulnerabilities; len(v) != 2 || v[0].ID != "RUSTSEC-2024-9001" || v[0].Score.Base != 4 ||
		v[1].ID != "GHSA-aaaa-bbbb-0401" {
		t.Errorf("vulnerabilities: %+v", v)
	}
	for id, want := range map[string]string{
		"RUSTSEC-2024-9002": Informational, "RUSTSEC-2024-9003": Withdrawn, "CVE-2024-90404": OtherEcosystem,
	} {
		if got := all["rustsec "+id]; got.Dropped != want || len(got.Vulnerabilities) > 0 {
			t.Errorf("%s: %+v", id, got)
		}
	}
}

func TestHomebrew(t *testing.T) {
	r := fixtures(t)["homebrew BREW-sample-CVE-2024-90501"]
	diff(t, "advisories", []vulndb.Advisory{{
		ID: "BREW-sample-CVE-2024-90501", Source: vulndb.HomebrewOSV, CVEs: []string{"CVE-2024-90501"},
		Related:   []string{"DEBIAN-CVE-2024-90501"},
		Ecosystem: vulndb.Homebrew, Name: "Sample@3", URL: "https://osv.dev/vulnerability/BREW-sample-CVE-2024-90501",
		Ranges: []vulndb.Range{{Fixed: "6.0_8"}},
	}}, r.Advisories)
}

func TestOverrides(t *testing.T) {
	r := fixtures(t)["nvd-overrides CVE-2024-90601"]
	diff(t, "configurations", []Configurations{{ID: "CVE-2024-90601", Rank: RankOverride, List: []vulndb.Applicability{
		{ID: "CVE-2024-90601", Source: vulndb.NVD, Nodes: []vulndb.Node{{Criteria: []vulndb.Criterion{
			{
				CPE: `cpe:2.3:a:example:sample\+:*:*:*:*:*:node.js:*:*`, Vulnerable: true, StartIncluding: "1.0",
				EndExcluding: "1.5",
			},
		}}}},
		{ID: "CVE-2024-90601", Source: vulndb.NVD, Nodes: []vulndb.Node{
			{Criteria: []vulndb.Criterion{
				{CPE: "cpe:2.3:a:example:other:*:*:*:*:*:*:*:*", Vulnerable: true, EndIncluding: "3"},
			}},
			{Criteria: []vulndb.Criterion{{CPE: "cpe:2.3:o:example:os:-:*:*:*:*:*:*:*"}}},
		}},
	}}}, r.Configurations)
	if reasons(r) != "a CPE without vendor and product" {
		t.Errorf("rejected: %s", reasons(r))
	}
}

func TestCVERecords(t *testing.T) {
	all := fixtures(t)
	r := all["cve CVE-2024-90601"]
	sample := "cpe:2.3:a:example:sample:*:*:*:*:*:*:*:*"
	diff(t, "configurations", []Configurations{
		{
			ID: "CVE-2024-90601", Rank: RankCVE,
			List: []vulndb.Applicability{{ID: "CVE-2024-90601", Source: vulndb.CNA, Nodes: []vulndb.Node{
				{Criteria: []vulndb.Criterion{
					{CPE: sample, Vulnerable: true, StartIncluding: "1.0", EndExcluding: "1.4"},
				}},
			}}},
		},
		{
			ID: "CVE-2024-90601", Rank: RankAffected,
			List: []vulndb.Applicability{{ID: "CVE-2024-90601", Source: vulndb.ADP, Nodes: []vulndb.Node{
				{Criteria: []vulndb.Criterion{
					{CPE: sample, Vulnerable: true, EndExcluding: "1.4"},
					{CPE: sample, Vulnerable: true, StartIncluding: "2.0", EndIncluding: "2.3"},
					{CPE: sample, Vulnerable: true, StartIncluding: "3.1", EndIncluding: "3.1"},
					{CPE: "cpe:2.3:a:example:exact:1.2:*:*:*:*:*:*:*", Vulnerable: true},
				}},
			}}},
		},
	}, r.Configurations)
	v := r.Vulnerabilities[0]
	if v.Score.Base != 8.8 || v.Score.Source != vulndb.CNA || v.Score.Version != "3.1" || !v.Exploited ||
		v.ExploitedSince.Day() != 9 {
		t.Errorf("vulnerability: %+v", v)
	}
	if r := all["cve CVE-2024-90602"]; !r.Vulnerabilities[0].Rejected {
		t.Errorf("a rejected CVE: %+v", r)
	}
}

func TestLists(t *testing.T) {
	all := fixtures(t)
	if v := all["kev CVE-2024-90101"].Vulnerabilities[0]; !v.Exploited ||
		v.ExploitedSince.Format(time.DateOnly) != "2024-11-12" {
		t.Errorf("KEV: %+v", v)
	}
	undated := parseKEV(Item{Name: "x", Data: []byte(`{"cveID": "CVE-2024-90102"}`)})
	if v := undated.Vulnerabilities; len(undated.Rejected) != 0 || len(v) != 1 || !v[0].Exploited ||
		!v[0].ExploitedSince.IsZero() {
		t.Errorf("KEV without a date: %+v", undated)
	}
	if r := all["kev none"]; len(r.Rejected) != 1 {
		t.Errorf("KEV without an id: %+v", r)
	}
	if v := all["epss CVE-2024-90701"].Vulnerabilities[0]; v.EPSS != 0.12345 || v.EPSSPercentile != 0.98765 {
		t.Errorf("EPSS: %+v", v)
	}
	if r := all["epss CVE-2024-90102"]; len(r.Rejected) != 1 || len(r.Vulnerabilities) > 0 {
		t.Errorf("EPSS above 1: %+v", r)
	}
	r := all["nvd CVE-2024-90701"]
	v := r.Vulnerabilities[0]
	if v.Score.Base != 7.5 || v.Score.Source != vulndb.NVD || v.Score.Version != "3.1" || !v.Exploited {
		t.Errorf("NVD counts before the CNA, and 3.1 before 2.0: %+v", v)
	}
	if len(r.Configurations) != 1 || r.Configurations[0].Rank != RankNVD {
		t.Errorf("configurations: %+v", r.Configurations)
	}
	if r := all["nvd CVE-2024-90702"]; !r.Vulnerabilities[0].Rejected {
		t.Errorf("rejected: %+v", r)
	}
	if r := all["nvd bad"]; len(r.Rejected) != 1 {
		t.Errorf("no CVE id: %+v", r)
	}
}

// TestPacking reads the same files as a directory, and in every packing that feeds come in.
func TestPacking(t *testing.T) {
	want := fixtures(t)
	dir := t.TempDir()
	var tarred, zipped bytes.Buffer
	tw, zw := tar.NewWriter(&tarred), zip.NewWriter(&zipped)
	check(t, filepath.WalkDir("testdata", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(p, filepath.Join("testdata", "fuzz")) {
			return err
		}
		b, err := os.ReadFile(p)
		check(t, err)
		check(t, tw.WriteHeader(&tar.Header{Name: filepath.ToSlash(p), Size: int64(len(b)), Mode: 0o644}))
		_, err = tw.Write(b)
		check(t, err)
		w, err := zw.Create(filepath.ToSlash(p))
		check(t, err)
		_, err = w.Write(b)
		return err
	}))
	check(t, tw.Close())
	check(t, zw.Close())
	var gz bytes.Buffer
	g := gzip.NewWriter(&gz)
	_, err := g.Write(tarred.Bytes())
	check(t, err)
	check(t, g.Close())
	z, err := zstd.NewWriter(nil)
	check(t, err)
	for name, b := range map[string][]byte{
		"all.tar": tarred.Bytes(), "all.tar.gz": gz.Bytes(), "all.tgz": gz.Bytes(),
		"all.tar.zst": z.EncodeAll(tarred.Bytes(), nil), "all.zip": zipped.Bytes(),
	} {
		p := filepath.Join(dir, name)
		check(t, os.WriteFile(p, b, 0o600))
		got, _, bad := records(t, p)
		if len(got) != len(want) || len(bad) > 0 {
			t.Errorf("%s: %d records, want %d; bad: %v", name, len(got), len(want), bad)
		}
		for id, r := range want {
			if d := cmp.Diff(r.Advisories, got[id].Advisories); d != "" {
				t.Errorf("%s: %s:\n%s", name, id, d)
			}
		}
	}
	check(t, os.WriteFile(filepath.Join(dir, "cut.tar.gz"), gz.Bytes()[:gz.Len()/2], 0o600))
	_, err = Read(context.Background(), filepath.Join(dir, "cut.tar.gz"), func(Item) error { return nil },
		func(Rejection) {})
	if err == nil || !strings.Contains(err.Error(), "cut.tar.gz") {
		t.Errorf("an archive that is cut off: %v", err)
	}
}

// TestBadFiles has files of each form that are truncated or have other content: each is named, and
// none is lost because of another.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/GHSA-1.json":     `{"id": "GHSA-1", "affected": [`,
		"b/CVE-2024-1.json": `{"dataType": "CVE_RECORD", "cveMetadata": 5}`,
		"c/CVE-2024-2.json": `{"_annotation": {"cve_id": "x"}, "cve": []}`,
		"d/PYSEC-1.yaml":    "id: PYSEC-1\naffected: 7\n",
		"e/gems/x/bad.yml":  "gem: x\npatched_versions:\n  - \">= one\"\n",
		"f/nvd.json":        `{"format": "NVD_CVE", "vulnerabilities": [{"cve": {"id": "CVE-2024-10001"}}, {"cve": {"id": 7}}, `,
		"g/crates/x/RU.md":  "```toml\n[advisory]\nid = \"R\"\n",
		"h/crates/x/RV.md": "```toml\n[advisory]\nid = \"R\"\npackage = \"p\"\n[versions]\npatched " +
			"= [\"nonsense\"]\n```\n",
		"i/notes.json":       `{"name": "package.json of something"}`,
		"i/README.md":        "# Words\n",
		"j/epss.csv":         "cve,epss,percentile\nnonsense\nCVE-2024-10002,0.5,0.5\n",
		"k/GHSA-good.json":   `{"id": "GHSA-good", "affected": [{"package": {"ecosystem": "npm", "name": "x"}, "versions": ["1"]}]}`,
		"l/array.json":       `[1, 2]`,
		"m/deep/.git/x.json": `{"id": "GHSA-hidden"}`,
	} {
		p := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(p), 0o755))
		check(t, os.WriteFile(p, []byte(text), 0o600))
	}
	all, n, bad := records(t, dir)
	if n.Ignored != 3 {
		t.Errorf("%d files were ignored", n.Ignored)
	}
	if len(bad) != 1 || !strings.Contains(bad[0].Record, "nvd.json") {
		t.Errorf("bad files: %v", bad)
	}
	rejected := 0
	for _, r := range all {
		if len(r.Rejected) > 0 {
			rejected++
			if r.Feed == "" || strings.Contains(reasons(r), "\n") {
				t.Errorf("%+v", r)
			}
		}
	}
	if rejected != 9 || len(all["ghsa GHSA-good"].Advisories) != 1 ||
		len(all["nvd CVE-2024-10001"].Vulnerabilities) != 1 || len(all["epss CVE-2024-10002"].Vulnerabilities) != 1 {
		t.Errorf("%d rejected of %v", rejected, all)
	}
}

// TestListsCutOff: a truncated list is named, wherever it ends, and its first records are used.
func TestListsCutOff(t *testing.T) {
	for name, head := range map[string]string{
		"KEV": `{"catalogVersion": "2024", "dateReleased": "2024-01-01T00:00:00Z", "count": 2`,
		"NVD": `{"resultsPerPage": 2, "format": "NVD_CVE", "version": "2.0"`,
	} {
		list := `, "vulnerabilities": [{"cveID": "CVE-2024-10001", "cve": {"id": "CVE-2024-10001"}}`
		for _, c := range []struct {
			text   string
			taken  int
			reason string
		}{
			{head, 0, "incomplete JSON object"},
			{head + `, `, 0, "EOF"},
			{head + `, "vulnerabilities"`, 0, "EOF"},
			{head + list, 1, "EOF"},
			{head + list + `]`, 1, "incomplete JSON object"},
			{head + `}`, 0, "list of vulnerabilities is missing"},
			{head + list + `]}`, 1, ""},
		} {
			file := filepath.Join(t.TempDir(), "list.json")
			check(t, os.WriteFile(file, []byte(c.text), 0o600))
			all, _, bad := records(t, file)
			if len(all) != c.taken || len(bad) > 1 || (len(bad) == 0) != (c.reason == "") ||
				len(bad) == 1 && !strings.Contains(bad[0].Reason, c.reason) {
				t.Errorf("%s: %q: %d records, bad: %v", name, c.text, len(all), bad)
			}
		}
	}
}

// TestDeepTOML: the parser of TOML takes memory by the square of a key's parts, and a stack frame
// for each level.
func TestDeepTOML(t *testing.T) {
	for body, reason := range map[string]string{
		strings.Repeat("a.", 5_000) + "a = 1": "nested", "[" + strings.Repeat("a.", 5_000) + "a]": "nested",
		"a = " + strings.Repeat("[", 10_000): "nested", strings.Repeat("a.a = 1\n", 10_000): "longer than",
	} {
		r := Item{Kind: kindRustSec, Name: "crates/x/RUSTSEC-2020-0001.md", Data: []byte("```toml\n" + body +
			"\n```\n")}.Parse()
		if len(r) != 1 || len(r[0].Rejected) != 1 || !strings.Contains(r[0].Rejected[0].Reason, reason) {
			t.Errorf("%.20q: got %+v", body, r)
		}
	}
}
