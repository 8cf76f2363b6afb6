package match_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

func TestExplain(t *testing.T) {
	ghsa := fixed("GHSA-1", vulndb.GHSA, "3.0.0", "CVE-2024-1")
	db := inEcosystem(vulndb.Crates, fixed("RUSTSEC-1", vulndb.RustSec, "2.0.0", "CVE-2024-1"), ghsa,
		fixed("RUSTSEC-2", vulndb.RustSec, "9.0.0", "CVE-2024-2"))
	db.applicabilities = applies(anyOf(criterion("a:v:app:*"+rest, "<", "2.0")), anyOf(platform(win))).applicabilities
	replaced := pkg(catalog.Rust, "p", "1.0.0")
	replaced.Replaced = true
	odd := pkg(catalog.Rust, "p", "odd")
	ruled := named("v")
	ruled.Rules = match.Rules{IgnoredCVEs: []string{"CVE-2024-1"}}
	tests := []struct {
		name string
		q    match.ExplainRequest
		o    match.Options
		want []string // each in one of the steps
		has  bool
	}{
		{
			"affected",
			match.ExplainRequest{ID: "CVE-2024-1", Package: pkg(catalog.Rust, "p", "1.0.0")},
			named("v"),
			[]string{
				"GHSA-1 (ghsa) is not evaluated: RUSTSEC-1 (rustsec) takes precedence", "1.0.0 is within < 2.0.0",
				"So p 1.0.0 has CVE-2024-1",
			},
			true,
		},
		{
			"fixed",
			match.ExplainRequest{ID: "CVE-2024-1", Package: pkg(catalog.Rust, "p", "2.0.0")},
			named("v"),
			[]string{
				"2.0.0 is outside of < 2.0.0", "So CVE-2024-1 is not reported",
			},
			false,
		},
		{
			"by another name",
			match.ExplainRequest{ID: "RUSTSEC-1", Package: pkg(catalog.Rust, "p", "1.0.0")},
			named("v"),
			[]string{"1.0.0 is within < 2.0.0"},
			true,
		},
		{
			"replaced",
			match.ExplainRequest{ID: "CVE-2024-1", Package: replaced},
			named("v"),
			[]string{"its code was replaced"},
			false,
		},
		{
			"not comparable",
			match.ExplainRequest{ID: "CVE-2024-1", Package: odd},
			named("v"),
			[]string{`not a version of SemVer: "odd"`},
			false,
		},
		{
			"unknown",
			match.ExplainRequest{ID: "CVE-2024-9", Package: pkg(catalog.Rust, "p", "1.0.0")},
			named("v"),
			[]string{"Nothing in the database"},
			false,
		},
		{
			"ignored",
			match.ExplainRequest{ID: "CVE-2024-1", Package: pkg(catalog.Rust, "p", "1.0.0")},
			ruled,
			[]string{"It is left out: CVE-2024-1 is ignored"},
			false,
		},
		{
			"product",
			match.ExplainRequest{ID: "CVE-2024-1", Package: pkg(catalog.MacOSApp, "app", "1.0")},
			named("v"),
			[]string{
				"(< 2.0) holds for version 1.0", "windows:-:*:*:*:*:*:*:* (= -) does not hold",
				"does not hold as a whole",
			},
			false,
		},
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

// A record that has its CVE from another decides here too, whichever ID is requested.
func TestExplainDecidesAsMatch(t *testing.T) {
	ghsa := fixed("GHSA-1", vulndb.GHSA, "1.0.0")
	ghsa.Related = []string{"PYSEC-1"}
	db := inEcosystem(vulndb.PyPI, ghsa, fixed("PYSEC-1", vulndb.PyPA, "3.0.0", "CVE-2024-1"),
		fixed("PYSEC-2", vulndb.PyPA, "3.0.0", "CVE-2024-2"))
	for version, affected := range map[string]bool{"0.9.0": true, "2.0.0": false} {
		p := pkg(catalog.Python, "p", version)
		found := slices.ContainsFunc(run(t, db, match.Options{}, p).Findings,
			func(f match.Finding) bool { return f.Vulnerability.ID == "CVE-2024-1" })
		if found != affected {
			t.Errorf("%s: the match says %v", version, found)
		}
		for _, id := range []string{"CVE-2024-1", "GHSA-1", "PYSEC-1"} {
			e, err := match.Explain(t.Context(), db, match.ExplainRequest{ID: id, Package: p}, match.Options{})
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(e.Steps, "\n")
			if (e.Finding != nil) != affected || !strings.Contains(all, "PYSEC-1 (pypa) is not evaluated") ||
				strings.Contains(all, "CVE-2024-2") {
				t.Errorf("%s of %s: got %v, want %v:\n%s", id, version, e.Finding != nil, affected, all)
			}
		}
	}
}

// Every step of a decision is recorded, and none of another decision.
func TestExplainSteps(t *testing.T) {
	cask := pkg(catalog.Brew, "p", "1.0")
	cask.Locations = []string{"/opt/homebrew/Caskroom/p/1.0"}
	unreviewed := fixed("GO-1", vulndb.GoVuln, "", "CVE-2024-1")
	unreviewed.Ranges, unreviewed.Versions, unreviewed.Unconfirmed = []vulndb.Range{
		{Introduced: "9.0.0"}, {Fixed: "odd"},
	}, []string{"1.0.0"}, true
	jruby := fixed("RUBYSEC-1", vulndb.RubySec, "2.0.0", "CVE-2024-1")
	jruby.Platform = "jruby"
	alias := fixed("GHSA-1", vulndb.GHSA, "2.0.0")
	alias.Related = []string{"X-1"}
	first, second := fixed("RUSTSEC-1", vulndb.RustSec, "2.0.0"),
		fixed("GHSA-1", vulndb.GHSA, "3.0.0", "CVE-2024-2", "CVE-2024-1")
	first.Related = []string{"GHSA-1", "GHSA-2"}
	formula := fixed("BREW-1", vulndb.HomebrewOSV, "0.5", "CVE-2024-1")
	nvd := func(nodes ...vulndb.Node) *memory {
		return &memory{applicabilities: append(applies(nodes...).applicabilities, vulndb.Applicability{
			ID: "CVE-2024-2", Nodes: []vulndb.Node{anyOf(criterion("a:v:p:*"+rest, "<", "7.0"))},
		})}
	}
	both := inEcosystem(vulndb.Homebrew, formula)
	both.applicabilities = applies(anyOf(criterion("a:v:p:*" + rest))).applicabilities

	ask := func(id string, p catalog.Package) match.ExplainRequest {
		return match.ExplainRequest{ID: id, Package: p}
	}
	rust := pkg(catalog.Rust, "p", "1.0.0")
	third := fixed("GHSA-2", vulndb.GHSA, "3.0.0", "CVE-2024-1")
	ruled := match.Options{Rules: match.Rules{IgnoredCVEs: []string{"CVE-2024-1", "CVE-2024-2"}}}
	rejected := inEcosystem(vulndb.Go, fixed("GO-1", vulndb.GoVuln, "2.0.0", "CVE-2024-1"))
	rejected.vulnerabilities = []vulndb.Vulnerability{{ID: "CVE-2024-1", Rejected: true}}
	brew := pkg(catalog.Brew, "p", "1.0")
	for _, tt := range []struct {
		name string
		db   *memory
		q    match.ExplainRequest
		o    match.Options
		want string
	}{
		{"affected, of two names", inEcosystem(vulndb.Crates, first, second, third), ask("GHSA-2", rust), match.Options{}, `GHSA-1 (ghsa) is not evaluated: RUSTSEC-1 (rustsec) takes precedence.
GHSA-2 (ghsa) is not evaluated: RUSTSEC-1 (rustsec) takes precedence.
RUSTSEC-1 (rustsec) is about ` + string(vulndb.Crates) + ` p: 1 range, 0 single versions.
1.0.0 is within < 2.0.0.
GHSA-1 (ghsa) is not evaluated: RUSTSEC-1 (rustsec) takes precedence.
RUSTSEC-1 (rustsec) is about ` + string(vulndb.Crates) + ` p: 1 range, 0 single versions.
1.0.0 is within < 2.0.0.
So p 1.0.0 has CVE-2024-2.`},
		{"by an alias", inEcosystem(vulndb.NPM, alias), ask("X-1", pkg(catalog.NPM, "p", "1.0.0")), match.Options{}, `GHSA-1 (ghsa) is about npm p: 1 range, 0 single versions.
1.0.0 is within < 2.0.0.
So p 1.0.0 has GHSA-1.`},
		{"left out", inEcosystem(vulndb.Crates, second), ask("GHSA-1", rust), ruled, `GHSA-1 (ghsa) is about ` + string(vulndb.Crates) + ` p: 1 range, 0 single versions.
1.0.0 is within < 3.0.0.
It is left out: CVE-2024-1 is ignored.
GHSA-1 (ghsa) is about ` + string(vulndb.Crates) + ` p: 1 range, 0 single versions.
1.0.0 is within < 3.0.0.
It is left out: CVE-2024-2 is ignored.
So GHSA-1 is not reported for p 1.0.0.`},
		{"nobody reviewed it", inEcosystem(vulndb.Go, unreviewed), ask("CVE-2024-1", pkg(catalog.Go, "p", "1.0.0")), match.Options{}, `GO-1 (go) is about Go p: 2 ranges, 1 single version.
Not reviewed: a match by an open-ended range is marked and fails no build.
1.0.0 is outside of >= 9.0.0.
1.0.0 cannot be compared with < odd: not a version of SemVer: "odd".
1.0.0 is in its list of affected versions.
So p 1.0.0 has CVE-2024-1.`},
		{"for another platform", inEcosystem(vulndb.RubyGems, jruby), ask("CVE-2024-1", pkg(catalog.Gem, "p", "1.0.0")), match.Options{}, `RUBYSEC-1 (rubysec) is about packages for jruby alone.
So CVE-2024-1 is not reported for p 1.0.0.`},
		{"a cask", inEcosystem(vulndb.Homebrew, formula), ask("CVE-2024-1", cask), products(), `p 1.0 is a cask: what Homebrew says is about the formula of that name.
What NVD would call p is not known.
So CVE-2024-1 is not reported for p 1.0.`},
		{"Homebrew is nearer", both, ask("CVE-2024-1", brew), named("v"), `BREW-1 (homebrew) is about Homebrew p: 1 range, 0 single versions.
1.0 is outside of < 0.5.
NVD may have it as v:p.
NVD is ignored for CVE-2024-1: BREW-1 decides it.
So CVE-2024-1 is not reported for p 1.0.`},
		{"rejected", rejected, ask("CVE-2024-1", pkg(catalog.Go, "p", "1.0.0")), match.Options{}, `GO-1 (go) is about Go p: 1 range, 0 single versions.
1.0.0 is within < 2.0.0.
CVE-2024-1 was rejected: it is not a vulnerability.
So CVE-2024-1 is not reported for p 1.0.0.`},
		{"two products", nvd(anyOf(criterion("a:v:p:*"+rest, "<", "odd"), criterion("a:w:p:*"+rest, "<", "2.0"), vulndb.Criterion{CPE: "cpe:2.3:a:v"})), ask("CVE-2024-1", brew), products(cpe.Product{Vendor: "v", Product: "p"}, cpe.Product{Vendor: "w", Product: "p"}), `NVD may have it as v:p.
Criterion cpe:2.3:a:v:p:*:*:*:*:*:*:*:* (< odd) does not hold for version 1.0.
It cannot be compared: not a version of NVD: "odd".
Criterion cpe:2.3:a:w:p:*:*:*:*:*:*:*:* (< 2.0) holds for version 1.0.
All parts of the configuration of CVE-2024-1 hold.
NVD may have it as w:p.
So p 1.0 has CVE-2024-1.`},
		{"a part does not hold", nvd(anyOf(criterion("a:v:p:1.0"+rest)), anyOf(platform(win))), ask("CVE-2024-1", brew), named("v"), `NVD may have it as v:p.
Criterion cpe:2.3:a:v:p:1.0:*:*:*:*:*:*:* (= 1.0) holds for version 1.0.
Criterion cpe:2.3:o:microsoft:windows:-:*:*:*:*:*:*:* (= -) does not hold for version 1.0.
The configuration of CVE-2024-1 does not hold as a whole.
So CVE-2024-1 is not reported for p 1.0.`},
	} {
		e, err := match.Explain(t.Context(), tt.db, tt.q, tt.o)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(e.Steps, "\n"); got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// An explanation reports whether the database has the ID and the package at all.
func TestExplainKnows(t *testing.T) {
	db := inEcosystem(vulndb.NPM, fixed("GHSA-1", vulndb.GHSA, "2.0.0"))
	db.applicabilities = applies(anyOf(criterion("a:v:p:*" + rest))).applicabilities
	db.vulnerabilities = []vulndb.Vulnerability{{ID: "CVE-2024-2"}}
	for _, tt := range []struct {
		id           string
		p            catalog.Package
		known, about bool
	}{
		{"GHSA-1", pkg(catalog.NPM, "p", "3.0.0"), true, true},
		{"CVE-2024-2", pkg(catalog.NPM, "p", "3.0.0"), true, true},
		{"CVE-2024-9", pkg(catalog.NPM, "p", "3.0.0"), false, true},
		{"CVE-2024-9", pkg(catalog.NPM, "q", "3.0.0"), false, false},
		{"CVE-2024-1", pkg(catalog.Brew, "p", "3.0.0"), true, true},
		{"CVE-2024-9", pkg(catalog.Brew, "p", "3.0.0"), false, true},
	} {
		e, err := match.Explain(t.Context(), db, match.ExplainRequest{ID: tt.id, Package: tt.p}, named("v"))
		if err != nil || e.KnownID != tt.known || e.KnownPackage != tt.about {
			t.Errorf("%s of %s %s: %v, %v, %v", tt.id, tt.p.Kind, tt.p.Name, e.KnownID, e.KnownPackage, err)
		}
	}
}
