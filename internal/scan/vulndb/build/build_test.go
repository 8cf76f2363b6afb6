package build_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
	"github.com/buildyard/buildyard/internal/scan/vulndb/vulndbtest"
)

var fixtures = filepath.Join("..", "feed", "testdata")

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string) *vulndb.DB {
	t.Helper()
	db, err := vulndb.Open(path)
	check(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func vulnerability(t testing.TB, db *vulndb.DB, id string) vulndb.Vulnerability {
	t.Helper()
	v, ok, err := db.Vulnerability(id)
	check(t, err)
	if !ok {
		t.Errorf("nothing is known of %s", id)
	}
	return v
}

func applicabilities(t testing.TB, db *vulndb.DB, vendor, product string) (list []vulndb.Applicability) {
	t.Helper()
	for a, err := range db.EachApplicability(vendor, product) {
		check(t, err)
		list = append(list, a)
	}
	return list
}

// TestFixtures builds all forms of feeds into one database.
func TestFixtures(t *testing.T) {
	target := filepath.Join(t.TempDir(), "db")
	report, err := build.Build(t.Context(),
		build.Options{Inputs: []string{fixtures}, Target: target, MaxMemory: 1 << 20})
	check(t, err)
	db := open(t, target)
	check(t, db.Verify(t.Context()))
	var names []string
	for _, s := range db.Info().Sources {
		names = append(names, s.Name)
	}
	if d := cmp.Diff([]string{
		"almalinux", "alpine", "cve", "debian", "debian-tracker", "epss", "ghsa", "go", "homebrew", "kev", "nvd",
		"nvd-overrides", "pypa", "redhat", "rocky", "rubysec", "rustsec", "suse", "ubuntu",
	}, names); d != "" {
		t.Error(d)
	}
	if want := time.Date(2026, 9, 12, 11, 0, 5, 0, time.UTC); !db.Info().Built.Equal(want) {
		t.Errorf("it is dated %s, its newest source %s", db.Info().Built, want)
	}

	v := vulnerability(t, db, "CVE-2024-90101")
	if v.Score.Base != 9.8 || !v.Exploited || v.EPSS != 0.00042 ||
		v.URL != "https://nvd.nist.gov/vuln/detail/CVE-2024-90101" ||
		!slices.Equal(v.Related, []string{"GHSA-aaaa-bbbb-0001"}) {
		t.Errorf("joined from GHSA, KEV and EPSS: %+v", v)
	}
	if v := vulnerability(t, db, "CVE-2024-90602"); !v.Rejected {
		t.Errorf("rejected: %+v", v)
	}
	if v := vulnerability(t, db, "RUSTSEC-2024-9001"); v.Score.Source != vulndb.RustSec ||
		v.URL != "https://rustsec.org/advisories/RUSTSEC-2024-9001.html" {
		t.Errorf("without a CVE: %+v", v)
	}
	// The overrides of a CVE count, the CVE record's own criteria do not.
	list := applicabilities(t, db, "example", "sample")
	if len(list) != 1 || list[0].ID != "CVE-2024-90701" {
		t.Errorf("applicabilities of sample: %+v", list)
	}
	if list = applicabilities(t, db, "example", "sample+"); len(list) != 1 ||
		list[0].Nodes[0].Criteria[0].EndExcluding != "1.5" {
		t.Errorf("applicabilities of sample+: %+v", list)
	}
	if list = applicabilities(t, db, "example", "os"); len(list) != 0 {
		t.Errorf("a platform is not vulnerable: %+v", list)
	}
	var out bytes.Buffer
	check(t, report.Print(&out))
	for _, want := range []string{"1 withdrawn", "1 informational", "2025-08-26", "applicabilities"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, out.String())
		}
	}
}

// TestSameInputsSameBytes builds with little and much memory, and in other orders.
func TestSameInputsSameBytes(t *testing.T) {
	dir := t.TempDir()
	feed := filepath.Join(dir, "nvd.json")
	f, err := os.Create(feed)
	check(t, err)
	check(t, vulndbtest.WriteNVDFeed(f, 1200, 5))
	check(t, f.Close())
	var first []byte
	for i, o := range []build.Options{
		{Inputs: []string{fixtures, feed}, MaxMemory: 64 << 20},
		{Inputs: []string{feed, fixtures}, MaxMemory: 1},
		{Inputs: []string{feed, fixtures, fixtures}, MaxMemory: 1},
	} {
		o.Target = filepath.Join(dir, "db")
		o.Now = vulndbtest.Built
		stages := map[string]bool{}
		o.Progress = func(p build.Progress) { stages[p.Stage] = true }
		_, err := build.Build(t.Context(), o)
		check(t, err)
		b, err := os.ReadFile(o.Target)
		check(t, err)
		switch i {
		case 0:
			first = b
			if len(stages) != 3 {
				t.Errorf("stages were %v", stages)
			}
		case 1:
			if !bytes.Equal(first, b) {
				t.Error("another order of the inputs and less memory gave other bytes")
			}
		default: // the sources count their records twice, and nothing else differs
			if a, c := open(t, o.Target).Info(), len(first)-len(b); a.Vulnerabilities == 0 || c > 100 || c < -100 {
				t.Errorf("records that come twice are kept twice: %d bytes more", -c)
			}
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// TestManyProductsOfOneNode checks each product: of a node that names many, each gets its own
// criteria, and a product with a platform keeps that.
func TestManyProductsOfOneNode(t *testing.T) {
	db, _ := vulndbtest.FromFeeds(t, map[string]string{"nvd.json": `{"format": "NVD_CVE", "vulnerabilities": [
	 {"cve": {"id": "CVE-2024-10001", "configurations": [
	  {"operator": "AND", "nodes": [
	   {"operator": "OR", "cpeMatch": [
	    {"vulnerable": true, "criteria": "cpe:2.3:a:v:one:*:*:*:*:*:*:*:*"}, {"vulnerable": true, "criteria": "cpe:2.3:a:v:two:1:*:*:*:*:*:*:*"},
	    {"vulnerable": true, "criteria": "cpe:2.3:a:v:one:2:*:*:*:*:*:*:*"}, {"vulnerable": true, "criteria": "cpe:2.3:h:v:box:-:*:*:*:*:*:*:*"}]},
	   {"operator": "OR", "cpeMatch": [{"vulnerable": false, "criteria": "cpe:2.3:o:v:os:*:*:*:*:*:*:*:*"}, {"vulnerable": false, "criteria": "cpe:2.3:o:w:os:*:*:*:*:*:*:*:*"}]}]},
	  {"nodes": [{"operator": "AND", "cpeMatch": [{"vulnerable": true, "criteria": "cpe:2.3:a:v:three:*:*:*:*:*:*:*:*"}, {"vulnerable": true, "criteria": "cpe:2.3:a:v:four:*:*:*:*:*:*:*:*"}]}]}]}}]}`})
	for name, want := range map[string][]int{
		"one": {2, 2}, "two": {1, 2}, "three": {2}, "four": {2}, "os": nil, "box": nil,
	} {
		var got []int
		for _, a := range applicabilities(t, db, "v", name) {
			for _, n := range a.Nodes {
				got = append(got, len(n.Criteria))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has nodes of %v criteria, want %v", name, got, want)
		}
	}
}

func TestRejectedApplyToNothing(t *testing.T) {
	db, _ := vulndbtest.FromFeeds(t, map[string]string{
		"o.json": `{"_annotation": {"cve_id": "CVE-2024-10001"}, "cve": {"configurations": [{"nodes": [{"cpeMatch": [{"vulnerable": true, "criteria": "cpe:2.3:a:v:p:*:*:*:*:*:*:*:*"}]}]}]}}`,
		"c.json": `{"dataType": "CVE_RECORD", "cveMetadata": {"cveId": "CVE-2024-10001", "state": "REJECTED"}}`,
	})
	if list := applicabilities(t, db, "v", "p"); len(list) > 0 {
		t.Errorf("%+v", list)
	}
}

func TestFailureLeavesTheTarget(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "db")
	check(t, os.WriteFile(target, []byte("old"), 0o600))
	_, err := build.Build(t.Context(), build.Options{Inputs: []string{filepath.Join(dir, "missing")}, Target: target})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing input: %v", err)
	}
	other := t.TempDir()
	check(t, os.WriteFile(filepath.Join(other, "README"), []byte("no feed"), 0o600))
	if _, err := build.Build(t.Context(), build.Options{Inputs: []string{other}, Target: target}); err == nil ||
		!strings.Contains(err.Error(), "no usable advisory found in "+other+": 1 files are not advisory feeds") {
		t.Errorf("no feed: %v", err)
	}
	check(t, os.WriteFile(filepath.Join(other, "GHSA-1.json"),
		[]byte(`{"schema_version": "1.4.0", "id": "GHSA-1", "modified": 7}`), 0o600))
	if _, err := build.Build(t.Context(), build.Options{Inputs: []string{other}, Target: target}); err == nil ||
		!strings.Contains(err.Error(), "rejected: ") {
		t.Errorf("a bad record alone: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := build.Build(ctx, build.Options{Inputs: []string{fixtures}, Target: target}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "old" {
		t.Errorf("the target is %q, %v", b, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
}
