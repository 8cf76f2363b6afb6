package build_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/vulndbtest"
)

const (
	older = "2024-02-01T00:00:00Z"
	newer = "2024-06-01T00:00:00Z"

	criticalVector = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"
	lowVector      = "CVSS:3.1/AV:L/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N"
)

func nvdRevision(modified, status, vector, end string) string {
	return fmt.Sprintf(`{"format": "NVD_CVE", "vulnerabilities": [{"cve": {"id": "CVE-2024-10001", "vulnStatus": %q, "lastModified": %q,
	 "metrics": {"cvssMetricV31": [{"source": "nvd@nist.gov", "cvssData": {"version": "3.1", "vectorString": %q}}]},
	 "configurations": [{"nodes": [{"cpeMatch": [{"vulnerable": true, "criteria": "cpe:2.3:a:v:p:*:*:*:*:*:*:*:*", "versionEndExcluding": %q}]}]}]}}]}`,
		status, modified, vector, end)
}

func cveRevision(modified, state string) string {
	return fmt.Sprintf(
		`{"dataType": "CVE_RECORD", "cveMetadata": {"cveId": "CVE-2024-10001", "state": %q, "dateUpdated": %q}}`, state,
		modified)
}

func epssDay(date string, probability float64) string {
	return fmt.Sprintf("#model_version:v1,score_date:%s\ncve,epss,percentile\nCVE-2024-10001,%v,%v\n", date,
		probability, probability)
}

func ghsaRevision(modified, more, name, fixed string) string {
	return fmt.Sprintf(`{"id": "GHSA-1", "aliases": ["CVE-2024-10001"], "modified": %q, %s
	 "severity": [{"type": "CVSS_V3", "score": %q}],
	 "affected": [{"package": {"ecosystem": "npm", "name": %q}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": %q}]}]}]}`,
		modified, more, lowVector, name, fixed)
}

func rustRevision(withdrawn string) string {
	return "```toml\n[advisory]\nid = \"RUSTSEC-2024-0001\"\npackage = \"x\"\ndate = \"2024-02-01\"\n" + withdrawn +
		"[versions]\npatched = [\">= 2.0.0\"]\n```\n"
}

// known is the data a test checks: of CVE-2024-10001, of its product and of packages named x and y.
type known struct {
	Base, EPSS float64
	Rejected   bool
	Related    []string
	Ends       []string // of the product's versions
	X, Y       []string // where the advisories' ranges end
}

func knownOf(t *testing.T, db *vulndb.DB) known {
	t.Helper()
	v, _, err := db.Vulnerability("CVE-2024-10001")
	check(t, err)
	k := known{Base: v.Score.Base, EPSS: v.EPSS, Rejected: v.Rejected, Related: v.Related}
	for _, a := range applicabilities(t, db, "v", "p") {
		k.Ends = append(k.Ends, a.Nodes[0].Criteria[0].EndExcluding)
	}
	ends := func(name string) (list []string) {
		for _, eco := range []vulndb.Ecosystem{vulndb.NPM, vulndb.Crates, vulndb.RubyGems} {
			advisories, err := db.Advisories(eco, name)
			check(t, err)
			for _, a := range advisories {
				list = append(list, a.Ranges[0].Fixed)
			}
		}
		return list
	}
	k.X, k.Y = ends("x"), ends("y")
	return k
}

// TestNewestRevision has records that come twice, in either order of their files: only the content
// of the newer one is stored, also when that is less.
func TestNewestRevision(t *testing.T) {
	for name, c := range map[string]struct {
		ext   string
		files []string
		want  known
	}{
		"NVD, another score and range": {
			".json",
			[]string{nvdRevision(older, "Analyzed", criticalVector, "9.0"), nvdRevision(newer, "Modified", lowVector,
				"2.0")},
			known{Base: 1.8, Ends: []string{"2.0"}},
		},
		"NVD, no longer rejected": {
			".json",
			[]string{nvdRevision(older, "Rejected", criticalVector, "9.0"), nvdRevision(newer, "Analyzed",
				criticalVector, "2.0")},
			known{Base: 9.8, Ends: []string{"2.0"}},
		},
		"NVD, rejected": {
			".json",
			[]string{nvdRevision(older, "Analyzed", criticalVector, "9.0"), nvdRevision(newer, "Rejected",
				criticalVector, "9.0")},
			known{Rejected: true},
		},
		"CVE, no longer rejected, and what NVD says": {
			".json",
			[]string{cveRevision(older, "REJECTED"), cveRevision(newer, "PUBLISHED"), nvdRevision(older, "Analyzed",
				criticalVector, "9.0")},
			known{Base: 9.8, Ends: []string{"9.0"}},
		},
		"EPSS of two days": {
			".csv",
			[]string{epssDay("2024-02-01", 0.9), epssDay("2024-06-01", 0.1)},
			known{EPSS: 0.1},
		},
		"GHSA, another range": {
			".json",
			[]string{ghsaRevision(older, "", "x", "2.0.0"), ghsaRevision(newer, "", "x", "1.0.0")},
			known{Base: 1.8, Related: []string{"GHSA-1"}, X: []string{"1.0.0"}},
		},
		"GHSA, withdrawn": {".json", []string{ghsaRevision(older, "", "x", "2.0.0"), ghsaRevision(newer,
			`"withdrawn": "2024-06-01T00:00:00Z",`, "x", "2.0.0")}, known{}},
		"GHSA, another package": {
			".json",
			[]string{ghsaRevision(older, "", "x", "2.0.0"), ghsaRevision(newer, "", "y", "2.0.0")},
			known{Base: 1.8, Related: []string{"GHSA-1"}, Y: []string{"2.0.0"}},
		},
		"RustSec, withdrawn, its date is the same": {
			".md", []string{rustRevision(""), rustRevision("withdrawn = \"2024-03-01\"\n")}, known{},
		},
		"RustSec, bad as a whole": {".md", []string{
			rustRevision(""), "```toml\n[advisory]\nid = \"RUSTSEC-2024-0001\"\n",
		}, known{X: []string{"2.0.0"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				other := "gem: z\ncve: 2024-20002\ndate: 2024-02-01\npatched_versions:\n  - \">= 2.0\"\n"
				files := map[string]string{"gems/z/CVE-2024-20002.yml": other} // an empty database is an error
				for i, text := range c.files {
					files[fmt.Sprint(i, c.ext)] = text
				}
				db, report := vulndbtest.FromFeeds(t, files)
				if d := cmp.Diff(c.want, knownOf(t, db)); d != "" {
					t.Errorf("%s\n%+v", d, report.Sources)
				}
				slices.Reverse(c.files)
			}
		})
	}
}

// TestGemsShareIDs: RubySec names its records by CVE, and has one for each gem.
func TestGemsShareIDs(t *testing.T) {
	gem := func(name, date string) string {
		return fmt.Sprintf("gem: %s\ncve: 2024-10001\ndate: %s\npatched_versions:\n  - \">= 2.0\"\n", name, date)
	}
	db, _ := vulndbtest.FromFeeds(t,
		map[string]string{"gems/x/CVE-2024-10001.yml": gem("x", "2024-02-01"), "gems/y/CVE-2024-10001.yml": gem("y",
			"2024-06-01")})
	if got := knownOf(t, db); !slices.Equal(got.X, []string{"2.0"}) || !slices.Equal(got.Y, []string{"2.0"}) {
		t.Errorf("%+v", got)
	}
}
