package match_test

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

func pkg(kind catalog.PackageType, name, version string) catalog.Package {
	return catalog.Package{
		Kind: kind, Name: name, Version: version, Locations: []string{"/x/" + name},
		CPEs: []string{"cpe:2.3:a:" + name + ":" + name + ":" + version + ":*:*:*:*:*:*:*"},
	}
}

func fixed(id string, source vulndb.Source, fixed string, cves ...string) vulndb.Advisory {
	return vulndb.Advisory{ID: id, Source: source, CVEs: cves, Name: "p", Ranges: []vulndb.Range{{Fixed: fixed}}}
}

func inEcosystem(e vulndb.Ecosystem, list ...vulndb.Advisory) *memory {
	for i := range list {
		list[i].Ecosystem = e
	}
	return &memory{advisories: list}
}

// The source that comes first decides alone, also when it reports no vulnerability.
func TestOneSourceDecides(t *testing.T) {
	kinds := []struct {
		kind   catalog.PackageType
		eco    vulndb.Ecosystem
		better vulndb.Source
		worse  vulndb.Source
	}{
		{catalog.Go, vulndb.Go, vulndb.GoVuln, vulndb.GHSA},
		{catalog.Go, vulndb.Go, vulndb.GHSA, vulndb.OSV},
		{catalog.Rust, vulndb.Crates, vulndb.RustSec, vulndb.GHSA},
		{catalog.NPM, vulndb.NPM, vulndb.GHSA, vulndb.OSV},
		{catalog.Java, vulndb.Maven, vulndb.GHSA, vulndb.OSV},
		{catalog.Python, vulndb.PyPI, vulndb.GHSA, vulndb.PyPA},
		{catalog.Python, vulndb.PyPI, vulndb.PyPA, vulndb.OSV},
		{catalog.Gem, vulndb.RubyGems, vulndb.RubySec, vulndb.GHSA},
		{catalog.Swift, vulndb.SwiftURL, vulndb.GHSA, vulndb.OSV},
	}
	for _, k := range kinds {
		for _, swap := range []int{0, 1} {
			list := []vulndb.Advisory{
				fixed("BETTER-1", k.better, "2.0.0", "CVE-2024-1"),
				fixed("WORSE-1", k.worse, "3.0.0", "CVE-2024-1"),
			}
			list[0], list[swap] = list[swap], list[0]
			db := inEcosystem(k.eco, list...)
			r := run(t, db, match.Options{}, pkg(k.kind, "p", "1.0.0"), pkg(k.kind, "p", "2.0.0"))
			expect(t, found(r), "p 1.0.0 CVE-2024-1 < 2.0.0")
			if f := r.Findings[0]; f.Advisory != "BETTER-1" || f.Source != k.better || f.Type != "Semantic" ||
				f.Fixed[0] != "2.0.0" {
				t.Errorf("%s: got %+v", k.kind, f)
			}
			expect(t, r.Findings[0].Vulnerability.Related, "BETTER-1")
		}
	}
}

// Records without a CVE are merged with those that they name, and only with those.
func TestOtherNames(t *testing.T) {
	a := fixed("RUSTSEC-1", vulndb.RustSec, "2.0.0")
	a.Related = []string{"GHSA-1"}
	b := fixed("GHSA-1", vulndb.GHSA, "3.0.0")
	c := fixed("GHSA-2", vulndb.GHSA, "4.0.0")
	r := run(t, inEcosystem(vulndb.Crates, a, b, c), match.Options{}, pkg(catalog.Rust, "p", "1.0.0"),
		pkg(catalog.Rust, "p", "2.0.0"))
	expect(t, found(r), "p 1.0.0 GHSA-2 < 4.0.0", "p 1.0.0 RUSTSEC-1 < 2.0.0", "p 2.0.0 GHSA-2 < 4.0.0")

	b.CVEs = []string{"CVE-2024-7", "CVE-2024-8"}
	r = run(t, inEcosystem(vulndb.Crates, a, b), match.Options{}, pkg(catalog.Rust, "p", "1.0.0"),
		pkg(catalog.Rust, "p", "2.0.0"))
	expect(t, found(r), "p 1.0.0 CVE-2024-7 < 2.0.0", "p 1.0.0 CVE-2024-8 < 2.0.0")
	expect(t, r.Findings[0].Vulnerability.Related, "RUSTSEC-1")
}

func TestRanges(t *testing.T) {
	a := vulndb.Advisory{ID: "GHSA-1", Source: vulndb.GHSA, Name: "p", Ranges: []vulndb.Range{
		{Introduced: "0", Fixed: "1.2.3"},
		{Introduced: "2.0.0", LastAffected: "2.4.0"},
		{Introduced: "3.0.0", IntroducedOpen: true, Fixed: "3.1.0"},
		{Introduced: "4.0.0", LastAffected: "4.0.0"},
		{Introduced: "9.0.0"},
	}, Versions: []string{"7.0.0", "v7.1", "8.x"}}
	db := inEcosystem(vulndb.NPM, a)
	tests := []struct{ version, want string }{
		{"0.0.0-alpha", "< 1.2.3"},
		{"1.2.2", "< 1.2.3"},
		{"1.2.3-rc.1", "< 1.2.3"},
		{"1.2.3", ""},
		{"1.2.3+build", ""},
		{"2.0.0-rc.1", ""},
		{"2.0.0", ">= 2.0.0, <= 2.4.0"},
		{"2.4.0", ">= 2.0.0, <= 2.4.0"},
		{"2.4.1", ""},
		{"3.0.0", ""},
		{"3.0.1", "> 3.0.0, < 3.1.0"},
		{"3.1.0", ""},
		{"4.0.0", "= 4.0.0"},
		{"7.0.0", "= 7.0.0"},
		{"7.1.0", "= 7.1.0"},
		{"7.2.0", ""},
		{"8.0.0", ""},
		{"99.0.0", ">= 9.0.0"},
	}
	for _, tt := range tests {
		r := run(t, db, match.Options{}, pkg(catalog.NPM, "p", tt.version))
		got := ""
		if len(r.Findings) == 1 {
			got = r.Findings[0].Constraint
		}
		if got != tt.want || len(r.NotEvaluated) != 0 {
			t.Errorf("%s: got %q, want %q; not judged: %v", tt.version, got, tt.want, r.NotEvaluated)
		}
	}
}

// A package without a version, or without the code of its version, is never matched; a version that
// cannot be compared is reported.
func TestNotChecked(t *testing.T) {
	a := vulndb.Advisory{
		ID: "GO-1", Source: vulndb.GoVuln, Name: "p", Ranges: []vulndb.Range{{}},
		Versions: []string{"odd"},
	}
	std := a
	std.Name = "stdlib"
	db := inEcosystem(vulndb.Go, a, std)
	replaced := pkg(catalog.Go, "p", "1.0.0")
	replaced.Replaced = true
	modules := pkg(catalog.Go, "stdlib", "1.21.0")
	modules.Locations = []string{"/src/go.mod"}
	binary := pkg(catalog.Go, "stdlib", "go1.21.0")
	binary.Locations = []string{"/bin/x"}
	r := run(t, db, match.Options{}, replaced, modules, binary, pkg(catalog.Go, "p", "(devel)"),
		pkg(catalog.Go, "p", "v0.0.0-00010101000000-000000000000"),
		pkg(catalog.Go, "p", "odd"), pkg(catalog.Go, "p", "odder"), pkg(catalog.Go, "p", strings.Repeat("9", 1<<20)),
		pkg(catalog.Go, "p", "1\x00"))
	expect(t, found(r), "p odd GO-1 = odd", "stdlib go1.21.0 GO-1 >= 0")
	if len(r.NotEvaluated) != 3 || r.Packages != 9 {
		t.Errorf("got %+v", r)
	}
}

// Names and versions that are special for Go are ordinary elsewhere.
func TestOnlyGo(t *testing.T) {
	inModule := func(p catalog.Package, file string) catalog.Package {
		p.Locations = []string{"/src/" + file}
		return p
	}
	nowhere := pkg(catalog.Go, "stdlib", "go1.21.0")
	nowhere.Locations = nil
	for _, tt := range []struct {
		p    catalog.Package
		want bool
	}{
		{inModule(pkg(catalog.NPM, "stdlib", "1.0.0"), "go.mod"), true},
		{inModule(pkg(catalog.Go, "p", "v1.0.0"), "go.mod"), true},
		{pkg(catalog.NPM, "p", "(devel)"), true},
		{nowhere, true},
		{inModule(nowhere, "bin/x"), true},
		{inModule(nowhere, "go.mod"), false},
		{inModule(nowhere, "go.work"), false},
		{inModule(pkg(catalog.Go, "toolchain", "go1.21.0"), "go.mod"), false},
		{pkg(catalog.NPM, "stdlib", "go1.21.0"), false}, // no version of its kind
	} {
		db := &memory{advisories: []vulndb.Advisory{{
			ID: "X-1", Ecosystem: vulndb.Go, Name: tt.p.Name, Source: vulndb.GHSA,
			Ranges: []vulndb.Range{{Fixed: "2.0.0"}}, Versions: []string{"(devel)"},
		}}}
		if tt.p.Kind == catalog.NPM {
			db.advisories[0].Ecosystem = vulndb.NPM
		}
		if got := len(run(t, db, match.Options{}, tt.p).Findings) == 1; got != tt.want {
			t.Errorf("%s %s %s in %q: affected is %v", tt.p.Kind, tt.p.Name, tt.p.Version, tt.p.Locations, got)
		}
	}
}

// Bounds of a record that cannot be compared decide nothing, and are reported.
func TestOddBounds(t *testing.T) {
	for _, r := range []vulndb.Range{
		{Introduced: "odd", Fixed: "2.0.0"},
		{Introduced: "odd", LastAffected: "2.0.0"},
		{Introduced: "odd"},
		{Fixed: "odd"},
		{LastAffected: "odd"},
	} {
		a := fixed("GHSA-1", vulndb.GHSA, "")
		a.Ranges = []vulndb.Range{r}
		got := run(t, inEcosystem(vulndb.NPM, a), match.Options{}, pkg(catalog.NPM, "p", "1.0.0"))
		if len(got.Findings) != 0 || len(got.NotEvaluated) != 1 ||
			!strings.Contains(got.NotEvaluated[0].Reason, "GHSA-1") {
			t.Errorf("%+v: got %+v", r, got)
		}
	}
	a := fixed("GHSA-1", vulndb.GHSA, "2.0.0") // comparable only as text: it matches a list, and precedes nothing
	a.Versions = []string{"0", "other"}
	for version, want := range map[string]int{"odd": 0, "other": 1} {
		got := run(t, inEcosystem(vulndb.NPM, a), match.Options{}, pkg(catalog.NPM, "p", version))
		if len(got.Findings) != want || len(got.NotEvaluated) != 1-want || want > 0 && len(got.Findings[0].Fixed) != 0 {
			t.Errorf("%s: got %+v", version, got)
		}
	}
}

// A local version of Python counts only when compared with another one, and "0!" is ignored.
func TestLocalVersions(t *testing.T) {
	for _, tt := range []struct {
		last, listed, version string
		want                  bool
	}{
		{"1.0", "", "1.0", true},
		{"1.0", "", "1.0+b", true},
		{"1.0+a", "", "1.0+a", true},
		{"1.0+a", "", "1.0+b", false},
		{"1.0+a", "", "1.0", true},
		{"0.1", "0!2.0", "2.0", true},
		{"0.1", "2.0", "0!2.0", true},
		{"0.1", "2.0", "1!2.0", false},
	} {
		a := vulndb.Advisory{
			ID: "PYSEC-1", Source: vulndb.PyPA, Name: "p",
			Ranges: []vulndb.Range{{LastAffected: tt.last}}, Versions: []string{tt.listed},
		}
		if got := len(run(t, inEcosystem(vulndb.PyPI, a), match.Options{},
			pkg(catalog.Python, "p", tt.version)).Findings) == 1; got != tt.want {
			t.Errorf("%+v: affected is %v", tt, got)
		}
	}
}

// A finding has the fixed versions, the nearest first, and every other name of it.
func TestFixedAndRelated(t *testing.T) {
	within := fixed("GHSA-1", vulndb.GHSA, "", "CVE-2024-1")
	within.Ranges = []vulndb.Range{{Fixed: "10.0.0"}, {Fixed: "2.0.0"}, {Fixed: "2.0.0"}, {Fixed: "0.9.0"}, {}}
	listed := fixed("GHSA-2", vulndb.GHSA, "", "CVE-2024-2")
	listed.Ranges, listed.Versions = []vulndb.Range{
		{Fixed: "0.9.0"}, {Introduced: "3.0.0", Fixed: "4.0.0"}, {Introduced: "2.0.0"},
	}, []string{"1.0.0"}
	db := inEcosystem(vulndb.NPM, within, listed)
	db.vulnerabilities = []vulndb.Vulnerability{
		{ID: "CVE-2024-1", Related: []string{"A-1", "X-1"}}, {ID: "CVE-2024-2", Related: []string{"GHSA-2"}},
	}
	r := run(t, db, match.Options{}, pkg(catalog.NPM, "p", "1.0.0"))
	expect(t, found(r), "p 1.0.0 CVE-2024-1 < 10.0.0", "p 1.0.0 CVE-2024-2 = 1.0.0")
	expect(t, r.Findings[0].Fixed, "2.0.0", "10.0.0")
	expect(t, r.Findings[1].Fixed, "4.0.0")
	expect(t, r.Findings[0].Vulnerability.Related, "A-1", "GHSA-1", "X-1")
	expect(t, r.Findings[1].Vulnerability.Related, "GHSA-2")
	if got, want := r.Findings[0].CPE, "cpe:2.3:a:p:p:1.0.0:*:*:*:*:*:*:*"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	bare := pkg(catalog.NPM, "p", "1.0.0")
	bare.CPEs = nil
	if r := run(t, db, match.Options{}, bare); len(r.Findings) != 2 || r.Findings[0].CPE != "" {
		t.Errorf("without a CPE: got %+v", r)
	}
}

func TestGoItself(t *testing.T) {
	a := vulndb.Advisory{
		ID: "GO-1", Source: vulndb.GoVuln, Name: "stdlib", CVEs: []string{"CVE-2024-1"},
		Ranges: []vulndb.Range{
			{Fixed: "1.20.12"}, {Introduced: "1.21.0-0", Fixed: "1.21.5"},
		},
	}
	tests := []struct {
		version string
		want    bool
	}{
		{"go1.20.11", true},
		{"go1.20.12", false},
		{"1.20", true},
		{"go1.21rc2", true},
		{"go1.21.5", false},
		{"go1.21.4 X:boringcrypto", true},
		{"1.20.12-1", false},
		{"go1.20.11-1", true},
		{"go1.20.12-0", false},
		{"go1.21.5-X:nocoverageredesign", false},
		{"go1.21rc2-bigcorp", true},
		{"go1.21-devel", true},
		{"go1.22rc1", false},
		{"devel go1.21-abc", false},
	}
	for _, tt := range tests {
		for _, name := range []string{"stdlib", "toolchain"} {
			a.Name = name
			r := run(t, inEcosystem(vulndb.Go, a), match.Options{}, pkg(catalog.Go, name, tt.version))
			if got := len(r.Findings) == 1; got != tt.want {
				t.Errorf("%s %s: affected is %v", name, tt.version, got)
			}
		}
	}
}

// A finding from a range with an end, or from a list, is confirmed, whatever another part of a
// record contains.
func TestConfirmedCountsBeforeUnconfirmed(t *testing.T) {
	open := vulndb.Advisory{
		ID: "GO-1", Source: vulndb.GoVuln, Name: "p", CVEs: []string{"CVE-2024-1"},
		Ranges: []vulndb.Range{{}}, Unconfirmed: true,
	}
	bounded := fixed("GO-1", vulndb.GoVuln, "2.0.0", "CVE-2024-1")
	both := open
	both.Ranges = []vulndb.Range{{}, {Fixed: "2.0.0"}}
	listed := open
	listed.Ranges, listed.Versions = []vulndb.Range{{Introduced: "2.0.0"}}, []string{"1.0.0", "2.0.0"}
	for _, db := range []*memory{inEcosystem(vulndb.Go, open, bounded), inEcosystem(vulndb.Go,
		both), inEcosystem(vulndb.Go, listed)} {
		for _, version := range []string{"v1.0.0", "v2.0.0"} {
			r := run(t, db, match.Options{}, pkg(catalog.Go, "p", version))
			if len(r.Findings) != 1 || r.Findings[0].Unconfirmed != (version == "v2.0.0") {
				t.Errorf("%s: got %+v", version, r.Findings)
			}
		}
	}
}

func TestRejectedAndUnconfirmed(t *testing.T) {
	a := fixed("GO-1", vulndb.GoVuln, "2.0.0", "CVE-2024-1", "CVE-2024-2", "CVE-2024-4")
	b := vulndb.Advisory{
		ID: "GO-2", Source: vulndb.GoVuln, Name: "p", CVEs: []string{"CVE-2024-3"},
		Ranges: []vulndb.Range{{}}, Unconfirmed: true,
	}
	db := inEcosystem(vulndb.Go, a, b)
	db.vulnerabilities = []vulndb.Vulnerability{
		{ID: "CVE-2024-1", Rejected: true},
		{ID: "CVE-2024-4", Rejected: true},
		{ID: "CVE-2024-3", Score: vulndb.Score{Base: 9.9, Severity: vulndb.Critical, Version: "3.1"}, Exploited: true},
	}
	r := run(t, db, match.Options{}, pkg(catalog.Go, "p", "v1.0.0"))
	expect(t, found(r), "p v1.0.0 CVE-2024-2 < 2.0.0", "p v1.0.0 CVE-2024-3 >= 0", "p v1.0.0 GO-1 < 2.0.0")
	if r.UnknownScores != 2 || !r.Findings[1].Unconfirmed ||
		r.Findings[0].Vulnerability.Score.Severity != vulndb.Unknown {
		t.Errorf("got %+v", r)
	}
	fail, err := match.ParseFailOn("low,kev,0.1")
	if err != nil || len(fail.Fails(r.Findings)) != 0 {
		t.Errorf("what nobody confirmed fails a build: %v, %v", fail.Fails(r.Findings), err)
	}
}

func TestMatchEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := match.Match(ctx, &memory{}, []catalog.Package{pkg(catalog.Go, "p", "1")},
		match.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	db := &asked{then: cancel, memory: memory{advisories: []vulndb.Advisory{{Ecosystem: vulndb.Go, Name: "x"}}}}
	many := []catalog.Package{pkg(catalog.Go, "p", "1"), pkg(catalog.Go, "q", "1"), pkg(catalog.Go, "r", "1")}
	if _, err := match.Match(ctx, db, many, match.Options{}); !errors.Is(err, context.Canceled) || len(db.names) != 1 {
		t.Errorf("got %v after %q", err, db.names)
	}
	if _, err := match.Explain(ctx, &memory{}, match.ExplainRequest{Package: many[0]}, match.Options{}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
	broken := &memory{err: errors.New("broken")}
	if _, err := match.Match(t.Context(), broken, []catalog.Package{pkg(catalog.Go, "p", "1")},
		match.Options{}); err == nil || !strings.Contains(err.Error(), "match go") {
		t.Errorf("got %v", err)
	}
}

// asked is a database that records its queries.
type asked struct {
	memory
	mu    sync.Mutex
	names []string
	ids   []string
	then  func() // called with each name; may be nil
}

func (a *asked) Advisories(eco vulndb.Ecosystem, name string) ([]vulndb.Advisory, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names = append(a.names, name)
	if a.then != nil {
		a.then()
	}
	return a.memory.Advisories(eco, name)
}

func (a *asked) Vulnerability(id string) (vulndb.Vulnerability, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids = append(a.ids, id)
	return a.memory.Vulnerability(id)
}

// The database is queried once for each name, in its storage order, and once for each ID.
func TestAskedOnce(t *testing.T) {
	db := &asked{}
	for _, name := range []string{"a", "b", "c"} {
		one := fixed("GHSA-"+name, vulndb.GHSA, "2.0.0", "CVE-2024-1")
		one.Ecosystem, one.Name = vulndb.NPM, name
		db.advisories = append(db.advisories, one)
	}
	begun := 0
	o := match.Options{OnWorkerStart: func() { begun++ }} // so few packages are the work of one goroutine
	r := run(t, db, o, pkg(catalog.NPM, "c", "1.0.0"), pkg(catalog.NPM, "a", "1.1.0"), pkg(catalog.NPM, "b", "1.0.0"),
		pkg(catalog.NPM, "a", "1.0.0"))
	if len(r.Findings) != 4 || begun != 1 {
		t.Errorf("got %q, begun %d times", found(r), begun)
	}
	expect(t, db.names, "a", "b", "c")
	expect(t, db.ids, "CVE-2024-1")
}

// faulty is a database that cannot read one id, or no product.
type faulty struct {
	memory
	id       string
	products bool
}

var errFaulty = errors.New("faulty")

func (f *faulty) Vulnerability(id string) (vulndb.Vulnerability, bool, error) {
	if id == f.id {
		return vulndb.Vulnerability{}, false, errFaulty
	}
	return f.memory.Vulnerability(id)
}

func (f *faulty) EachApplicability(vendor, product string) iter.Seq2[vulndb.Applicability, error] {
	if f.products {
		f.memory.err = errFaulty
	}
	return f.memory.EachApplicability(vendor, product)
}

// Any unreadable part of a database fails the match: findings would be missing.
func TestUnreadable(t *testing.T) {
	open := vulndb.Advisory{
		ID: "GO-3", Source: vulndb.GoVuln, Name: "p", CVEs: []string{"CVE-2024-3"},
		Ranges: []vulndb.Range{{}}, Unconfirmed: true,
	}
	db := inEcosystem(vulndb.Go, fixed("GO-1", vulndb.GoVuln, "2.0.0", "CVE-2024-1", "CVE-2024-2"), open)
	db.vulnerabilities = []vulndb.Vulnerability{{ID: "CVE-2024-2", Rejected: true}}
	for _, id := range []string{"CVE-2024-8", "CVE-2024-9"} {
		db.applicabilities = append(db.applicabilities,
			vulndb.Applicability{ID: id, Nodes: []vulndb.Node{anyOf(criterion("a:v:p:*" + rest))}})
	}
	for _, f := range []struct {
		kind     catalog.PackageType
		id       string // that cannot be read
		products bool
	}{
		// last: rejected
		{catalog.Go, "CVE-2024-1", false},
		{catalog.Go, "CVE-2024-3", false},
		{catalog.Go, "GO-1", false},
		{catalog.Brew, "CVE-2024-8", false},
		{catalog.Brew, "CVE-2024-9", false},
		{catalog.Brew, "", true},
	} {
		broken := &faulty{memory: *db, id: f.id, products: f.products}
		p := pkg(f.kind, "p", "1.0.0")
		if _, err := match.Match(t.Context(), broken, []catalog.Package{p}, named("v")); !errors.Is(err, errFaulty) ||
			!strings.Contains(err.Error(), "p 1.0.0") {
			t.Errorf("%+v: the match says %v", f, err)
		}
		for _, id := range []string{cmp.Or(f.id, "CVE-2024-8"), "X-1"} {
			_, err := match.Explain(t.Context(), broken, match.ExplainRequest{ID: id, Package: p}, named("v"))
			if wanted := id != "X-1" || f.products; errors.Is(err, errFaulty) != wanted {
				t.Errorf("%+v: explaining %s says %v", f, id, err)
			}
		}
	}
	if _, err := match.Explain(t.Context(), &faulty{id: "X-1"},
		match.ExplainRequest{ID: "X-1", Package: pkg(catalog.Go, "p", "1.0.0")},
		named("v")); !errors.Is(err, errFaulty) {
		t.Errorf("an id that cannot be read: %v", err)
	}
}

func TestPlatform(t *testing.T) {
	a := fixed("CVE-2024-1", vulndb.RubySec, "2.0.0", "CVE-2024-1")
	a.Platform = "jruby"
	db := inEcosystem(vulndb.RubyGems, a, fixed("GHSA-1", vulndb.GHSA, "3.0.0", "CVE-2024-1"))
	inJRuby := pkg(catalog.Gem, "p", "1.0.1")
	inJRuby.Locations = []string{"/opt/jruby/lib/ruby/gems/shared/specifications/p-1.0.1.gemspec"}
	at := func(version, location string) catalog.Package {
		p := pkg(catalog.Gem, "p", version)
		p.Locations = []string{location}
		return p
	}
	r := run(t, db, match.Options{}, pkg(catalog.Gem, "p", "1.0.0"), pkg(catalog.Gem, "p", "1.0.0-java"), inJRuby,
		at("1.0.2", "/gems/p-1.0.2-java/lib"), at("1.0.3", "/gems/p-1.0.3-java.gemspec"),
		at("1.0.4", "/gems/javascript-java_script/lib"))
	expect(t, found(r), "p 1.0.0-java CVE-2024-1 < 2.0.0", "p 1.0.1 CVE-2024-1 < 2.0.0", "p 1.0.2 CVE-2024-1 < 2.0.0",
		"p 1.0.3 CVE-2024-1 < 2.0.0")
}

// The order of the input and the number of concurrent matchers change nothing.
func TestManyPackages(t *testing.T) {
	db := &memory{}
	var packages []catalog.Package
	for i := range 300 {
		name := "p" + strconv.Itoa(i)
		a := fixed("GHSA-"+name, vulndb.GHSA, "2.0.0", "CVE-2024-"+strconv.Itoa(i%7))
		a.Ecosystem, a.Name = vulndb.NPM, name
		db.advisories = append(db.advisories, a)
		packages = append(packages, pkg(catalog.NPM, name, "1.0.0"), pkg(catalog.NPM, name, "2.0.0"),
			pkg(catalog.NPM, name, "odd"), pkg(catalog.Rust, name, "1.0.0"))
	}
	o := match.Options{Rules: match.Rules{IgnoredCVEs: []string{"CVE-2024-3"}}}
	first := run(t, db, o, packages...)
	slices.Reverse(packages)
	second := run(t, db, o, packages...)
	if len(first.Findings)+first.Suppressed.CVEs != 300 || first.Suppressed.CVEs != 43 ||
		len(first.NotEvaluated) != 300 ||
		first.Packages != 1200 {
		t.Errorf("%d findings, %d not judged, hidden %+v", len(first.Findings), len(first.NotEvaluated),
			first.Suppressed)
	}
	if !reflect.DeepEqual(first, second) {
		t.Error("the result depends on the order of the packages")
	}
}

// FuzzMatch checks that the matcher returns whatever a package and its records contain.
func FuzzMatch(f *testing.F) {
	f.Add(uint8(0), "1.0.0", "0", "2.0.0", "cpe:2.3:a:p:p:*:*:*:*:*:*:*:*")
	f.Add(uint8(2), "1.0+local", "1.0a1", "1!2", "cpe:2.3:a:p:p:9.3:p2:*:*:*:macos:*:*")
	f.Add(uint8(6), "6.0_8", "", "6.0_9", `cpe:2.3:o:apple:macos:-:*:*:*:*:*:*:*`)
	f.Add(uint8(7), "p", "x", "_", "cpe:2.3:a:p:p")
	f.Fuzz(func(t *testing.T, kind uint8, version, from, to, name string) {
		p := pkg(catalog.Kinds[int(kind)%len(catalog.Kinds)], "p", version)
		ranges := []vulndb.Range{{Introduced: from, Fixed: to}, {Introduced: to, LastAffected: from}}
		db := &memory{applicabilities: []vulndb.Applicability{{ID: "CVE-2024-1", Nodes: []vulndb.Node{anyOf(
			vulndb.Criterion{CPE: name, Vulnerable: true, StartIncluding: from, EndExcluding: to},
			vulndb.Criterion{CPE: name, Vulnerable: true}, criterion("a:v:p:"+version+rest))}}}}
		for e := range kindOf {
			db.advisories = append(db.advisories,
				vulndb.Advisory{ID: "X-1", Ecosystem: e, Name: "p", Ranges: ranges, Versions: []string{from, to}})
		}
		r := run(t, db, named("v"), p)
		for _, found := range r.Findings {
			if found.Constraint == "" || found.Version != version || found.Vulnerability.ID == "" {
				t.Errorf("got %+v", found)
			}
			if _, err := match.Explain(t.Context(), db, match.ExplainRequest{ID: found.Vulnerability.ID, Package: p},
				named("v")); err != nil {
				t.Error(err)
			}
		}
	})
}
