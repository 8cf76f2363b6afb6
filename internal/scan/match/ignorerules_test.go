package match_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/match/ignore"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// TestOnlyFixed: the fixed version of an advisory that does not decide counts where the deciding one has none.
func TestOnlyFixed(t *testing.T) {
	db := inEcosystem(vulndb.PyPI,
		fixed("GHSA-1", vulndb.GHSA, "", "CVE-2024-1"), fixed("PYSEC-1", vulndb.PyPA, "2.0.0", "CVE-2024-1"),
		fixed("GHSA-2", vulndb.GHSA, "", "CVE-2024-2"), fixed("PYSEC-2", vulndb.PyPA, "0.9.0", "CVE-2024-2"),
		fixed("GHSA-3", vulndb.GHSA, "1.5.0", "CVE-2024-3"), fixed("PYSEC-3", vulndb.PyPA, "2.0.0", "CVE-2024-3"))
	all := run(t, db, match.Options{}, pkg(catalog.Python, "p", "1.0.0"))
	if got := ids(all.Findings); got != "1 2 3" {
		t.Fatalf("all: %s", got)
	}
	r := run(t, db, match.Options{Rules: match.Rules{OnlyFixed: true}}, pkg(catalog.Python, "p", "1.0.0"))
	if got := ids(r.Findings); got != "1 3" || r.Suppressed != (match.Suppressed{NotFixed: 1}) {
		t.Errorf("got %s, suppressed %+v", got, r.Suppressed)
	}
	if f := r.Findings[0]; f.Advisory != "GHSA-1" || !slices.Equal(f.Fixed, []string{"2.0.0"}) {
		t.Errorf("%s is fixed in %q", f.Advisory, f.Fixed)
	}
	if f := r.Findings[1]; !slices.Equal(f.Fixed, []string{"1.5.0"}) {
		t.Errorf("%s is fixed in %q, want the deciding version alone", f.Advisory, f.Fixed)
	}
}

func TestIgnoreRules(t *testing.T) {
	rules, err := ignore.Compile([]ignore.Rule{
		{ID: "GHSA-1", Reason: "a"},
		{Path: "/test/**", Reason: "b"},
		{ID: "CVE-2024-2", Path: "/srv/**", Reason: "c"},
		{Package: "npm/q", Reason: "d", Expires: "2020-01-01"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := pkg(catalog.NPM, "p", "1.0.0")
	p.Locations = []string{"/srv/p", "/test/p"}
	r := run(t, scored(), match.Options{Rules: match.Rules{Ignore: rules}}, p)
	if got := ids(r.Findings); got != "3 4 5 GHSA-6" || r.Suppressed != (match.Suppressed{IgnoreRules: 2}) {
		t.Errorf("got %s, suppressed %+v", got, r.Suppressed)
	}
	if want := map[int]int{0: 1, 1: 5, 2: 1}; !maps.Equal(r.IgnoredByRule, want) {
		t.Errorf("by rule: %v, want %v", r.IgnoredByRule, want)
	}
	for _, f := range r.Findings {
		if !slices.Equal(f.Package.Locations, []string{"/srv/p"}) {
			t.Errorf("%s is at %q", f.Vulnerability.ID, f.Package.Locations)
		}
	}
	e, err := match.Explain(t.Context(), scored(), match.ExplainRequest{ID: "CVE-2024-1", Package: p},
		match.Options{Rules: match.Rules{Ignore: rules}})
	if err != nil || e.Finding != nil || !slices.Contains(e.Steps, "It matches ignore rule 1 (id GHSA-1): a.") {
		t.Errorf("%v, %q", err, e.Steps)
	}
}
