package match_test

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// scored is a database in which p 1.0.0 has one vulnerability of each severity.
func scored() *memory {
	db := inEcosystem(vulndb.NPM,
		fixed("GHSA-1", vulndb.GHSA, "2.0.0", "CVE-2024-1"), fixed("GHSA-2", vulndb.GHSA, "2.0.0", "CVE-2024-2"),
		fixed("GHSA-3", vulndb.GHSA, "2.0.0", "CVE-2024-3"), fixed("GHSA-4", vulndb.GHSA, "2.0.0", "CVE-2024-4"),
		fixed("GHSA-5", vulndb.GHSA, "2.0.0", "CVE-2024-5"), fixed("GHSA-6", vulndb.GHSA, "2.0.0"))
	for i, s := range []vulndb.Score{
		{Base: 9.8, Severity: vulndb.Critical, Version: "3.1"},
		{Base: 7.5, Severity: vulndb.High, Version: "3.1"},
		{Base: 5, Severity: vulndb.Medium, Version: "3.1"},
		{Base: 2.1, Severity: vulndb.Low, Version: "3.1"},
		{Severity: vulndb.High},
	} {
		id := "CVE-2024-" + string(rune('1'+i))
		db.vulnerabilities = append(db.vulnerabilities, vulndb.Vulnerability{ID: id, Score: s, Exploited: i == 3})
	}
	return db
}

func ids(list []match.Finding) string {
	var out []string
	for _, f := range list {
		out = append(out, strings.TrimPrefix(f.Vulnerability.ID, "CVE-2024-"))
	}
	return strings.Join(out, " ")
}

type dismissal struct{ id, status string }

func (d dismissal) Suppresses(f *match.Finding) (string, bool) {
	return d.status, f.Vulnerability.ID == d.id
}

func TestRules(t *testing.T) {
	baseline, err := match.ReadBaseline(strings.NewReader(`{"matches": [
		{"vulnerability": {"id": "CVE-2024-2"}, "artifact": {"name": "p", "version": "1.0.0", "type": "npm"}},
		{"vulnerability": {"id": "CVE-2024-3"}, "artifact": {"name": "p", "version": "0.9.0", "type": "npm"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		rules  match.Rules
		want   string
		hidden match.Suppressed
	}{
		{"none", match.Rules{}, "1 2 3 4 5 GHSA-6", match.Suppressed{}},
		{"score", match.Rules{MinScore: 7.5}, "1 2", match.Suppressed{BelowMinimum: 2, UnknownScore: 2}},
		{
			"severity",
			match.Rules{MinSeverity: vulndb.High},
			"1 2 5",
			match.Suppressed{BelowMinimum: 2, UnknownScore: 1},
		},
		{"lowest severity", match.Rules{MinSeverity: vulndb.Low}, "1 2 3 4 5", match.Suppressed{UnknownScore: 1}},
		{
			"ids",
			match.Rules{IgnoredCVEs: []string{"cve-2024-1", "GHSA-6", "GHSA-2"}},
			"2 3 4 5",
			match.Suppressed{CVEs: 2},
		},
		{"vex", match.Rules{VEX: dismissal{"CVE-2024-2", "fixed"}}, "1 3 4 5 GHSA-6", match.Suppressed{VEX: 1}},
		{"baseline", match.Rules{Baseline: baseline}, "1 3 4 5 GHSA-6", match.Suppressed{Baseline: 1}},
		{"package", match.Rules{IgnoredPackages: []string{"cpe:/a:p:p:1.0.0"}}, "", match.Suppressed{Packages: 6}},
		{
			"another version",
			match.Rules{IgnoredPackages: []string{"cpe:/a:p:p:1.0.1", ""}},
			"1 2 3 4 5 GHSA-6",
			match.Suppressed{},
		},
		{
			"any version",
			match.Rules{IgnoredPackages: []string{"cpe:/a:p:p", "cpe:/a:p:p:1.0.%02"}},
			"1 2 3 4 5 GHSA-6",
			match.Suppressed{},
		},
	}
	for _, tt := range tests {
		r := run(t, scored(), match.Options{Rules: tt.rules}, pkg(catalog.NPM, "p", "1.0.0"))
		if got := ids(r.Findings); got != tt.want || r.Suppressed != tt.hidden ||
			len(r.Findings)+r.Suppressed.Total() != 6 {
			t.Errorf("%s: got %s, hidden %+v", tt.name, got, r.Suppressed)
		}
	}
	for bad, want := range map[string]string{
		"apple:icloud": "cpe:/a:vendor:product:version",
		"cpe:2.3:a:apple:icloud:1.0:*:*:*:*:*:*:*": "cpe:/a:vendor:product:version", "cpe:/a:apple:icloud:%zz": "",
	} {
		rules := match.Rules{IgnoredPackages: []string{bad}}
		_, matching := match.Match(t.Context(), scored(), nil, match.Options{Rules: rules})
		_, explaining := match.Explain(t.Context(), scored(), match.ExplainRequest{}, match.Options{Rules: rules})
		_, sieving := match.NewRuleFilter(rules)
		for _, err := range []error{matching, explaining, sieving, rules.Check()} {
			if err == nil || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v", bad, err)
			}
		}
	}
	if err := (&match.Rules{IgnoredPackages: []string{"cpe:/a:p:p:1.0.0"}}).Check(); err != nil {
		t.Error(err)
	}
}

// A filter keeps the same findings of a match without rules that a match with them returns.
func TestRuleFilter(t *testing.T) {
	all := run(t, scored(), match.Options{}, pkg(catalog.NPM, "p", "1.0.0")).Findings
	// of another program's report
	bare := match.Finding{Vulnerability: vulndb.Vulnerability{Score: vulndb.Score{Base: 1}}}
	if s, err := match.NewRuleFilter(match.Rules{MinSeverity: vulndb.Low}); err != nil || s.Keep(&bare) {
		t.Errorf("a finding without a severity is kept: %v", err)
	}
	for _, rules := range []match.Rules{
		{},
		{MinScore: 7.5},
		{MinSeverity: vulndb.Low},
		{IgnoredCVEs: []string{"CVE-2024-1"}},
		{IgnoredPackages: []string{"cpe:/a:p:p:1.0.0"}},
	} {
		s, err := match.NewRuleFilter(rules)
		if err != nil {
			t.Fatal(err)
		}
		var kept []match.Finding
		for i := range all {
			if s.Keep(&all[i]) {
				kept = append(kept, all[i])
			}
		}
		if want := ids(run(t, scored(), match.Options{Rules: rules},
			pkg(catalog.NPM, "p", "1.0.0")).Findings); ids(kept) != want {
			t.Errorf("%+v keeps %s, want %s", rules, ids(kept), want)
		}
	}
	if !match.IsMatchedByProduct(catalog.Brew) || match.IsMatchedByProduct(catalog.NPM) {
		t.Error("another kind of package is judged by products")
	}
}

// A score of 0.0 is unknown like a missing one, also when computed from a vector.
func TestZeroScore(t *testing.T) {
	db := inEcosystem(vulndb.NPM, fixed("GHSA-1", vulndb.GHSA, "2.0.0", "CVE-2024-1"))
	db.vulnerabilities = []vulndb.Vulnerability{
		{ID: "CVE-2024-1", Score: vulndb.Score{Severity: vulndb.Unknown, Version: "3.1"}},
	}
	for _, rules := range []match.Rules{{}, {MinScore: 0.1}, {MinSeverity: vulndb.Low}} {
		r := run(t, db, match.Options{Rules: rules}, pkg(catalog.NPM, "p", "1.0.0"))
		if r.UnknownScores+r.Suppressed.UnknownScore != 1 || r.Suppressed.BelowMinimum != 0 {
			t.Errorf("%+v: got %d with unknown scores, hidden %+v", rules, r.UnknownScores, r.Suppressed)
		}
	}
}

// The Windows program that matches a package of macOSPlatform by name and version is left out unless a list
// overrides that.
func TestDefaultIgnored(t *testing.T) {
	db := applies(anyOf(criterion("a:apple:icloud:*"+rest, "<", "7.0")))
	icloud := pkg(catalog.MacOSApp, "icloud", "1.0")
	icloud.CPEs = []string{"cpe:2.3:a:apple:icloud:1.0" + rest}
	o := named("apple")
	r := run(t, db, o, icloud)
	if len(r.Findings) != 0 || r.Suppressed.Packages != 1 {
		t.Errorf("got %+v", r)
	}
	o.Rules.IgnoredPackages = []string{""}
	expect(t, found(run(t, db, o, icloud)), "icloud 1.0 CVE-2024-1 < 7.0")
}

func TestFailOn(t *testing.T) {
	r := run(t, scored(), match.Options{}, pkg(catalog.NPM, "p", "1.0.0"))
	tests := []struct{ on, want string }{
		{"critical", "1"},
		{"severity=high", "1 2 5"},
		{"HIGH", "1 2 5"},
		{"low", "1 2 3 4 5"},
		{"7.5", "1 2"},
		{"score=2.1", "1 2 3 4"},
		{"kev", "4"},
		{"critical, kev", "1 4"},
	}
	for _, tt := range tests {
		f, err := match.ParseFailOn(tt.on)
		if err != nil {
			t.Fatal(err)
		}
		if got := ids(f.Fails(r.Findings)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.on, got, tt.want)
		}
	}
	for _, bad := range []string{
		"", "severity=unknown", "severe", "severity=7", "score=high", "11", "0", "-1", "NaN", "x=high",
		"kev=",
	} {
		if f, err := match.ParseFailOn(bad); err == nil {
			t.Errorf("%q is taken as %+v", bad, f)
		}
	}
	unscored := []match.Finding{
		{Vulnerability: vulndb.Vulnerability{ID: "CVE-2024-7", Exploited: true}},
		{Vulnerability: vulndb.Vulnerability{ID: "CVE-2024-8"}},
		{Vulnerability: vulndb.Vulnerability{ID: "CVE-2024-9", Exploited: true}, Unconfirmed: true},
	}
	for on, want := range map[string]int{"kev": 1, "low": 0, "0.1": 0, "low,kev": 1, "unknown": 2} { // without a score
		f, err := match.ParseFailOn(on)
		if got := f.Fails(unscored); err != nil || len(got) != want ||
			want > 0 && got[0].Vulnerability.ID != "CVE-2024-7" {
			t.Errorf("%s: %+v, %v", on, got, err)
		}
	}
	if len(match.FailOn{}.Fails(r.Findings)) != 0 {
		t.Error("nothing was asked for, and something fails")
	}
}

func TestBaselineForms(t *testing.T) {
	for _, bad := range []string{"", "[]", "{}", `{"matches": 1}`, "nothing"} {
		if _, err := match.ReadBaseline(strings.NewReader(bad)); err == nil || strings.Contains(err.Error(), "MiB") {
			t.Errorf("%q is a baseline: %v", bad, err)
		}
	}
	if b, err := match.ReadBaseline(strings.NewReader(`{"matches": []}`)); err != nil || b.Has(&match.Finding{}) {
		t.Errorf("got %v, %v", b, err)
	}
}
