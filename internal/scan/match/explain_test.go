package match_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

func TestExplain(t *testing.T) {
	ghsa := fixed("GHSA-1", vulndb.GHSA, "3.0.0", "CVE-2024-1")
	db := inEcosystem(vulndb.Crates, fixed("RUSTSEC-1", vulndb.RustSec, "2.0.0", "CVE-2024-1"), ghsa, fixed("RUSTSEC-2", vulndb.RustSec, "9.0.0", "CVE-2024-2"))
	db.applicabilities = applies(anyOf(criterion("a:v:app:*"+rest, "<", "2.0")), anyOf(platform(win))).applicabilities
	replaced := pkg(catalog.Rust, "p", "1.0.0")
	replaced.Replaced = true
	odd := pkg(catalog.Rust, "p", "odd")
	ruled := named("v")
	ruled.Rules = match.Rules{CVEs: []string{"CVE-2024-1"}}
	tests := []struct {
		name string
		q    match.Question
		o    match.Options
		want []string // each in one of the steps
		has  bool
	}{
		{"affected", match.Question{ID: "CVE-2024-1", Package: pkg(catalog.Rust, "p", "1.0.0")}, named("v"), []string{
			"GHSA-1 (ghsa) is not asked: RUSTSEC-1 (rustsec) comes first", "1.0.0 is within < 2.0.0", "So p 1.0.0 has CVE-2024-1",
		}, true},
		{"fixed", match.Question{ID: "CVE-2024-1", Package: pkg(catalog.Rust, "p", "2.0.0")}, named("v"), []string{
			"2.0.0 is outside of < 2.0.0", "So CVE-2024-1 is not reported",
		}, false},
		{"by another name", match.Question{ID: "RUSTSEC-1", Package: pkg(catalog.Rust, "p", "1.0.0")}, named("v"), []string{"1.0.0 is within < 2.0.0"}, true},
		{"replaced", match.Question{ID: "CVE-2024-1", Package: replaced}, named("v"), []string{"its code was replaced"}, false},
		{"not comparable", match.Question{ID: "CVE-2024-1", Package: odd}, named("v"), []string{`not a version of SemVer: "odd"`}, false},
		{"unknown", match.Question{ID: "CVE-2024-9", Package: pkg(catalog.Rust, "p", "1.0.0")}, named("v"), []string{"Nothing in the database"}, false},
		{"ignored", match.Question{ID: "CVE-2024-1", Package: pkg(catalog.Rust, "p", "1.0.0")}, ruled, []string{"It is left out: CVE-2024-1 is ignored"}, false},
		{"product", match.Question{ID: "CVE-2024-1", Package: pkg(catalog.MacOSApp, "app", "1.0")}, named("v"), []string{
			"(< 2.0) holds for version 1.0", "windows:-:*:*:*:*:*:*:* (= -) does not hold", "does not hold as a whole",
		}, false},
	}
	for _, tt := range tests {
		e, err := match.Explain(t.Context(), db, tt.q, tt.o)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(e.Steps, "\n")
		for _, w := range tt.want {
			if !strings.Contains(all, w) {
				t.Errorf("%s: nothing says %q in:\n%s", tt.name, w, all)
			}
		}
		if (e.Finding != nil) != tt.has {
			t.Errorf("%s: got %v", tt.name, e.Finding)
		}
		if strings.Contains(all, "CVE-2024-2 ") || strings.Contains(all, "RUSTSEC-2") {
			t.Errorf("%s: it speaks of another:\n%s", tt.name, all)
		}
	}
}

// A record that has its CVE from another decides here too, whatever it is asked by.
func TestExplainDecidesAsMatch(t *testing.T) {
	ghsa := fixed("GHSA-1", vulndb.GHSA, "1.0.0")
	ghsa.Related = []string{"PYSEC-1"}
	db := inEcosystem(vulndb.PyPI, ghsa, fixed("PYSEC-1", vulndb.PyPA, "3.0.0", "CVE-2024-1"), fixed("PYSEC-2", vulndb.PyPA, "3.0.0", "CVE-2024-2"))
	for version, affected := range map[string]bool{"0.9.0": true, "2.0.0": false} {
		p := pkg(catalog.Python, "p", version)
		found := slices.ContainsFunc(run(t, db, match.Options{}, p).Findings, func(f match.Finding) bool { return f.Vulnerability.ID == "CVE-2024-1" })
		if found != affected {
			t.Errorf("%s: the match says %v", version, found)
		}
		for _, id := range []string{"CVE-2024-1", "GHSA-1", "PYSEC-1"} {
			e, err := match.Explain(t.Context(), db, match.Question{ID: id, Package: p}, match.Options{})
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(e.Steps, "\n")
			if (e.Finding != nil) != affected || !strings.Contains(all, "PYSEC-1 (pypa) is not asked") || strings.Contains(all, "CVE-2024-2") {
				t.Errorf("%s of %s: got %v, want %v:\n%s", id, version, e.Finding != nil, affected, all)
			}
		}
	}
}
