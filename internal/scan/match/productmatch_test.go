package match_test

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// named returns options that name every package "vendor:name".
func named(vendor string) match.Options {
	return match.Options{Products: func(p catalog.Package) []cpe.Product {
		return []cpe.Product{{Vendor: vendor, Product: p.Name, Curated: true}}
	}}
}

// criterion returns one that is vulnerable.
func criterion(cpe string, bounds ...string) vulndb.Criterion {
	c := vulndb.Criterion{CPE: "cpe:2.3:" + cpe, Vulnerable: true}
	for i := 0; i+1 < len(bounds); i += 2 {
		switch bounds[i] {
		case ">=":
			c.StartIncluding = bounds[i+1]
		case ">":
			c.StartExcluding = bounds[i+1]
		case "<":
			c.EndExcluding = bounds[i+1]
		case "<=":
			c.EndIncluding = bounds[i+1]
		}
	}
	return c
}

func platform(cpe string) vulndb.Criterion { return vulndb.Criterion{CPE: "cpe:2.3:" + cpe} }

func anyOf(c ...vulndb.Criterion) vulndb.Node { return vulndb.Node{Criteria: c} }

func applies(nodes ...vulndb.Node) *memory {
	return &memory{applicabilities: []vulndb.Applicability{{ID: "CVE-2024-1", Nodes: nodes}}}
}

const (
	rest = ":*:*:*:*:*:*:*" // of a CPE, after its version
	mac  = "o:apple:macos:-" + rest
	win  = "o:microsoft:windows:-" + rest
)

func TestCriteria(t *testing.T) {
	below := criterion("a:v:p:*"+rest, ">=", "1.0", "<", "2.0")
	tests := []struct {
		name    string
		db      *memory
		version string
		want    string // the constraint; "" when it is not affected
	}{
		{"in the range", applies(anyOf(below)), "1.0", ">= 1.0, < 2.0"},
		{"pre-release of the fix", applies(anyOf(below)), "2.0rc1", ">= 1.0, < 2.0"},
		{"fixed", applies(anyOf(below)), "2.0", ""},
		{"before", applies(anyOf(below)), "0.9", ""},
		{"excluded start", applies(anyOf(criterion("a:v:p:*"+rest, ">", "1.0", "<=", "2.0"))), "1.0", ""},
		{"included end", applies(anyOf(criterion("a:v:p:*"+rest, ">", "1.0", "<=", "2.0"))), "2.0", "> 1.0, <= 2.0"},
		{"exact", applies(anyOf(criterion("a:v:p:0.1.8" + rest))), "0.1.8", "= 0.1.8"},
		{"exact, of a build", applies(anyOf(criterion("a:v:p:5.17.5" + rest))), "5.17.5 (29101)", "= 5.17.5"},
		{
			"included end, of a build", applies(anyOf(criterion("a:v:p:*"+rest, "<=", "5.17.5"))), "5.17.5 (29101)",
			"<= 5.17.5",
		},
		{"not exact", applies(anyOf(criterion("a:v:p:0.1.8" + rest))), "0.1.80", ""},
		{"a commit", applies(anyOf(criterion("a:v:p:7a3e91c2d" + rest))), "8", ""},
		{"update", applies(anyOf(criterion("a:v:p:9.3:p2:*:*:*:*:*:*"))), "9.3p2", "= 9.3 p2"},
		{"patch", applies(anyOf(criterion("a:v:p:1.9.5:patch1:*:*:*:*:*:*"))), "1.9.5p1", "= 1.9.5 patch1"},
		{"another update", applies(anyOf(criterion("a:v:p:9.3:p1:*:*:*:*:*:*"))), "9.3p2", ""},
		{"no update", applies(anyOf(criterion("a:v:p:9.3:-:*:*:*:*:*:*"))), "9.3p2", ""},
		{"any update", applies(anyOf(criterion("a:v:p:9.3" + rest))), "9.3p2", "= 9.3"},
		{"patch of another version", applies(anyOf(criterion("a:v:p:9.2" + rest))), "9.3p2", ""},
		{"patch without a number", applies(anyOf(criterion("a:v:p:9.3" + rest))), "9.3p", ""},
		{"no patch", applies(anyOf(criterion("a:v:p:9.3" + rest))), "9.3.p2", ""},
		{"a word that ends with p", applies(anyOf(criterion("a:v:p:9.3bum" + rest))), "9.3bump2", ""},
		{"a number", applies(anyOf(criterion("a:v:p:9" + rest))), "8", ""},
		{"no update, and it has none", applies(anyOf(criterion("a:v:p:9.3:-:*:*:*:*:*:*"))), "9.3", "= 9.3"},
		{"empty parts", applies(anyOf(criterion("a:v:p:9.3:::::::"))), "9.3", "= 9.3"},
		{"for no software", applies(anyOf(criterion("a:v:p:9.3:*:*:*:*:-:*:*"))), "9.3", "= 9.3"},
		{"letters are versions", applies(anyOf(criterion("a:v:p:1.1.1" + rest))), "1.1.1w", ""},
		{"any version", applies(anyOf(criterion("a:v:p:*" + rest))), "7", ">= 0"},
		{"an operating system", applies(anyOf(criterion("o:v:p:*" + rest))), "7", ""},
		{"no version", applies(anyOf(criterion("a:v:p:-" + rest))), "7", ""},
		{"another vendor", applies(anyOf(criterion("a:w:p:*"+rest), below)), "3.0", ""},
		{"any vendor", applies(anyOf(criterion("a:*:p:*"+rest), below)), "3.0", ""},
		{"for WordPress", applies(anyOf(criterion("a:v:p:*:*:*:*:*:wordpress:*:*"))), "1", ""},
		{"for Node.js", applies(anyOf(criterion("a:v:p:*:*:*:*:*:node.js:*:*"))), "1", ""},
		{"for Android", applies(anyOf(criterion("a:v:p:*:*:*:*:*:android:*:*"))), "1", ""},
		{"for iOS", applies(anyOf(criterion("a:v:p:*:*:*:*:*:iphone_os:*:*"))), "1", ""},
		{"for Windows", applies(anyOf(criterion("a:v:p:*:*:*:*:*:windows:*:*"))), "1", ""},
		{"for macOS", applies(anyOf(criterion("a:v:p:*:*:*:*:*:macos:*:*"))), "1", ">= 0"},
		{"for Mac OS X", applies(anyOf(criterion("a:v:p:*:*:*:*:*:mac_os_x:*:*"))), "1", ">= 0"},
		{"enterprise", applies(anyOf(criterion("a:v:p:*:*:*:*:enterprise:*:*:*"))), "1", ""},
		{"on macOS", applies(anyOf(below), anyOf(platform(win), platform(mac))), "1.5", ">= 1.0, < 2.0"},
		{"on Windows", applies(anyOf(below), anyOf(platform(win))), "1.5", ""},
		{"on hardware", applies(anyOf(below), anyOf(platform("h:x:y:-"+rest))), "1.5", ""},
		{"not on Windows", applies(anyOf(below),
			vulndb.Node{Negate: true, Criteria: []vulndb.Criterion{platform(win)}}), "1.5", ">= 1.0, < 2.0"},
		{"not on macOS", applies(anyOf(below),
			vulndb.Node{Negate: true, Criteria: []vulndb.Criterion{platform(mac)}}), "1.5", ""},
		{
			"all of one", applies(vulndb.Node{All: true, Criteria: []vulndb.Criterion{below, platform(mac)}}), "1.5",
			">= 1.0, < 2.0",
		},
		{
			"not all of one", applies(vulndb.Node{All: true, Criteria: []vulndb.Criterion{below, platform(win)}}),
			"1.5",
			"",
		},
		{"only negated", applies(vulndb.Node{Negate: true, Criteria: []vulndb.Criterion{below}}), "3.0", ""},
		{"with another that is there", applies(anyOf(below),
			anyOf(platform("a:v:other:-"+rest))), "1.5", ">= 1.0, < 2.0"},
		{"with another version of it", applies(anyOf(below), anyOf(platform("a:v:other:2.0"+rest))), "1.5", ""},
		{"with this version of it", applies(anyOf(below),
			anyOf(platform("a:v:other:1.0"+rest))), "1.5", ">= 1.0, < 2.0"},
		{"with another edition of it", applies(anyOf(below),
			anyOf(platform("a:v:other:-:*:*:*:enterprise:*:*:*"))), "1.5", ""},
		{"with a module of that name", applies(anyOf(below), anyOf(platform("a:v:module:-"+rest))), "1.5", ""},
		{"with another that is not", applies(anyOf(below), anyOf(platform("a:v:none:-"+rest))), "1.5", ""},
		{
			"a damaged CPE", applies(anyOf(vulndb.Criterion{CPE: "cpe:2.3:a:v", Vulnerable: true}, below)), "1.5",
			">= 1.0, < 2.0",
		},
		{"no nodes", applies(), "1.5", ""},
	}
	for _, tt := range tests {
		r := run(t, tt.db, named("v"), pkg(catalog.MacOSApp, "p", tt.version), pkg(catalog.MacOSApp, "other", "1.0"),
			pkg(catalog.NPM, "module", "1.0"))
		got := ""
		for _, f := range r.Findings {
			got = f.Constraint
			if f.Source != vulndb.NVD || f.Package.Name != "p" || f.Unconfirmed != (f.Constraint == ">= 0") {
				t.Errorf("%s: got %+v", tt.name, f)
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Homebrew's record of a CVE takes precedence over NVD's, also when it is "fixed": a revision can
// fix what no version does.
func TestHomebrewBeforeNVD(t *testing.T) {
	db := applies(anyOf(criterion("a:v:p:*"+rest, "<=", "6.0")))
	db.advisories = []vulndb.Advisory{{
		ID: "BREW-p-1", Source: vulndb.HomebrewOSV, Ecosystem: vulndb.Homebrew, Name: "p", CVEs: []string{"CVE-2024-1"},
		Ranges: []vulndb.Range{{Introduced: "0", Fixed: "6.0_8"}},
	}}
	db.applicabilities = append(db.applicabilities,
		vulndb.Applicability{ID: "CVE-2024-2", Nodes: []vulndb.Node{anyOf(criterion("a:v:p:*"+rest, "<=", "6.0"))}})
	tests := []struct {
		version string
		want    []string
	}{
		{"6.0", []string{"p 6.0 CVE-2024-1 < 6.0_8", "p 6.0 CVE-2024-2 <= 6.0"}},
		{"6.0_7", []string{"p 6.0_7 CVE-2024-1 < 6.0_8", "p 6.0_7 CVE-2024-2 <= 6.0"}},
		{"6.0_8", []string{"p 6.0_8 CVE-2024-2 <= 6.0"}},
		{"6.0_10", []string{"p 6.0_10 CVE-2024-2 <= 6.0"}},
		{"6.1", nil},
	}
	for _, tt := range tests {
		expect(t, found(run(t, db, named("v"), pkg(catalog.Brew, "p", tt.version))), tt.want...)
	}
}

// Homebrew's record of a formula is not about the cask of that name, nor about packages within it;
// a formula without a version is reported.
func TestCasks(t *testing.T) {
	db := inEcosystem(vulndb.Homebrew, fixed("BREW-p-1", vulndb.HomebrewOSV, "27.1.1", "CVE-2024-1"))
	inside := fixed("GHSA-1", vulndb.GHSA, "2.0.0", "CVE-2024-3")
	inside.Ecosystem = vulndb.NPM
	db.advisories = append(db.advisories, inside)
	db.applicabilities = applies(anyOf(criterion("a:v:p:*"+rest, "<", "4.31"))).applicabilities
	caskroom := []string{"/opt/homebrew/Caskroom/p/x"}
	cask, within, latest := pkg(catalog.Brew, "p", "4.30.0,149282"), pkg(catalog.NPM, "p", "1.0.0"),
		pkg(catalog.Brew, "p", "latest")
	cask.Locations, within.Locations, latest.Locations = caskroom, caskroom, caskroom
	head, both := pkg(catalog.Brew, "p", "HEAD-1a2b3c4"), pkg(catalog.Brew, "p", "26.0.0")
	both.Locations = append([]string{"/opt/homebrew/Cellar/p/26.0.0"}, caskroom...)

	r := run(t, db, named("v"), cask, within, latest, head, both, pkg(catalog.Brew, "p", "27.1.0"))
	expect(t, found(r), "p 1.0.0 CVE-2024-3 < 2.0.0", "p 26.0.0 CVE-2024-1 < 27.1.1", "p 27.1.0 CVE-2024-1 < 27.1.1",
		"p 4.30.0,149282 CVE-2024-1 < 4.31")
	var not []string
	for _, u := range r.NotEvaluated {
		not = append(not, u.Package.Version)
	}
	expect(t, not, "HEAD-1a2b3c4", "latest")
}

// Homebrew on Linux has the platform Linux, and pods are built into programs of all of Apple's
// systems.
func TestSystems(t *testing.T) {
	onLinux := pkg(catalog.Brew, "p", "1")
	onLinux.Locations = []string{"/opt/linuxbrew/.linuxbrew/Cellar/p/1"}
	below := criterion("a:v:p:*"+rest, "<", "2")
	linux := applies(anyOf(below), anyOf(platform("o:linux:linux_kernel:-"+rest)))
	expect(t, found(run(t, linux, named("v"), onLinux)), "p 1 CVE-2024-1 < 2")
	expect(t, found(run(t, linux, named("v"), pkg(catalog.Brew, "p", "1"))))
	both := pkg(catalog.Brew, "p", "1")
	both.Locations = append([]string{"/opt/homebrew/Cellar/p/1"}, onLinux.Locations...)
	expect(t, found(run(t, linux, named("v"), both)), "p 1 CVE-2024-1 < 2")
	onMac := applies(anyOf(below), anyOf(platform(mac)))
	expect(t, found(run(t, onMac, named("v"), onLinux)))
	expect(t, found(run(t, onMac, named("v"), both)), "p 1 CVE-2024-1 < 2")
	phone := applies(anyOf(criterion("a:v:p:*:*:*:*:*:iphone_os:*:*", "<", "2")))
	expect(t, found(run(t, phone, named("v"), pkg(catalog.Pod, "p", "1"))), "p 1 CVE-2024-1 < 2")
	expect(t, found(run(t, phone, named("v"), pkg(catalog.NPM, "p", "1"))))
}

// Of several sources with a CVE one decides here too.
func TestOneSourceOfProducts(t *testing.T) {
	db := &memory{applicabilities: []vulndb.Applicability{
		{ID: "CVE-2024-1", Source: vulndb.ADP, Nodes: []vulndb.Node{anyOf(criterion("a:v:p:*"+rest, "<", "4"))}},
		{ID: "CVE-2024-1", Source: vulndb.NVD, Nodes: []vulndb.Node{anyOf(criterion("a:v:p:*"+rest, "<", "2"))}},
		{ID: "CVE-2024-1", Source: vulndb.CNA, Nodes: []vulndb.Node{anyOf(criterion("a:v:p:*"+rest, "<", "3"))}},
		{ID: "CVE-2024-2", Source: vulndb.CNA, Nodes: []vulndb.Node{anyOf(criterion("a:v:p:*"+rest, "<", "3"))}},
	}}
	expect(t, found(run(t, db, named("v"), pkg(catalog.Brew, "p", "1"))), "p 1 CVE-2024-1 < 2", "p 1 CVE-2024-2 < 3")
	r := run(t, db, named("v"), pkg(catalog.Brew, "p", "2"))
	expect(t, found(r), "p 2 CVE-2024-2 < 3")
	if f := r.Findings[0]; f.Source != vulndb.CNA || f.Advisory != "CVE-2024-2" {
		t.Errorf("got %+v", f)
	}
}

// The names that packages have in NVD are those of the catalog; a guessed name of an application
// without a maker matches none.
func TestNames(t *testing.T) {
	db := &memory{}
	for i, name := range []string{"google:chrome", "apple:macos", "openssl:openssl", "nobody:nobody", "maker:tool"} {
		part := "a:"
		if name == "apple:macos" {
			part = "o:"
		}
		db.applicabilities = append(db.applicabilities, vulndb.Applicability{
			ID:    "CVE-2024-" + string(rune('1'+i)),
			Nodes: []vulndb.Node{anyOf(criterion(part+name+":*"+rest, "<", "200"))},
		})
	}
	app := func(name string, bundles ...string) catalog.Package {
		p := pkg(catalog.MacOSApp, name, "1.0")
		p.BundleIDs = bundles
		return p
	}
	r := run(t, db, match.Options{}, app("Google Chrome", "com.google.Chrome"), app("Chrome", "com.evil.Chrome"),
		app("nobody", ""), app("Tool", "com.maker.Tool"),
		app("Beside", "com.evil.Chrome", "com.google.Chrome"), app("Tool", "", "com.evil.Tool", "com.maker.Tool"),
		app("nobody", "", "com.evil.nobody"),
		pkg(catalog.Brew, "openssl@3", "3.0.8_1"), pkg(catalog.System, "macOS", "14.5"),
		pkg(catalog.NPM, "openssl", "1.0.0"))
	expect(t, found(r), "Beside 1.0 CVE-2024-1 < 200", "Google Chrome 1.0 CVE-2024-1 < 200",
		"Tool 1.0 CVE-2024-5 < 200", "Tool 1.0 CVE-2024-5 < 200", "macOS 14.5 CVE-2024-2 < 200",
		"openssl@3 3.0.8_1 CVE-2024-3 < 200")
}

// The version of macOSPlatform counts once it was found.
func TestVersionOfSystem(t *testing.T) {
	below := criterion("a:v:p:*"+rest, "<", "2.0")
	old := vulndb.Criterion{CPE: "cpe:2.3:o:apple:macos:*" + rest, EndExcluding: "13.0"}
	db := applies(anyOf(below), anyOf(old))
	o := named("v")
	o.Products = func(p catalog.Package) []cpe.Product {
		if p.Kind == catalog.System {
			return cpe.Products(p)
		}
		return []cpe.Product{{Vendor: "v", Product: p.Name}}
	}
	p := pkg(catalog.Brew, "p", "1.0")
	expect(t, found(run(t, db, o, p)), "p 1.0 CVE-2024-1 < 2.0")
	expect(t, found(run(t, db, o, p, pkg(catalog.System, "macOS", "12.1"))), "p 1.0 CVE-2024-1 < 2.0")
	expect(t, found(run(t, db, o, p, pkg(catalog.System, "macOS", "13.0"))))

	// A program with the name of the system is not the system.
	o.Products = func(p catalog.Package) []cpe.Product {
		if p.Name == "macos" {
			return []cpe.Product{{Vendor: "apple", Product: "macos"}}
		}
		return []cpe.Product{{Vendor: "v", Product: p.Name}}
	}
	expect(t, found(run(t, db, o, p, pkg(catalog.Brew, "macos", "99"))), "p 1.0 CVE-2024-1 < 2.0")

	// A criterion may name the system without a version.
	o.Products = func(p catalog.Package) []cpe.Product {
		if p.Kind == catalog.System {
			return cpe.Products(p)
		}
		return []cpe.Product{{Vendor: "v", Product: p.Name}}
	}
	expect(t, found(run(t, applies(anyOf(below), anyOf(platform(mac))), o, p, pkg(catalog.System, "macOS", "13.0"))),
		"p 1.0 CVE-2024-1 < 2.0")
}

// products returns options with these names for every package.
func products(list ...cpe.Product) match.Options {
	return match.Options{Products: func(catalog.Package) []cpe.Product { return list }}
}

// A package matches the name in a criterion: "*" in a criterion is not a name, and the target
// software counts.
func TestProductOfCriterion(t *testing.T) {
	for _, tt := range []struct {
		cpe  string
		is   cpe.Product
		want string
	}{
		{"a:*:p:*" + rest, cpe.Product{Vendor: "*", Product: "p"}, ""},
		{"a:v:*:*" + rest, cpe.Product{Vendor: "v", Product: "*"}, ""},
		{
			"a:v:p:*:*:*:*:*:wordpress:*:*",
			cpe.Product{Vendor: "v", Product: "p", TargetSW: "WordPress"},
			"p 1 CVE-2024-1 >= 0",
		},
		{"a:v:p:*:*:*:*:*:wordpress:*:*", cpe.Product{Vendor: "v", Product: "p", TargetSW: "drupal"}, ""},
	} {
		got := found(run(t, applies(anyOf(criterion(tt.cpe))), products(tt.is), pkg(catalog.Brew, "p", "1")))
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s of %+v: got %q", tt.cpe, tt.is, got)
		}
	}
}

// A finding of NVD has its fixed versions and names; a rejected ID is not reported.
func TestFindingOfProduct(t *testing.T) {
	db := &memory{
		applicabilities: []vulndb.Applicability{
			{ID: "CVE-2024-1", Nodes: []vulndb.Node{anyOf(criterion("a:v:p:*"+rest, "<", "2"))}},
			{ID: "CVE-2024-2", Nodes: []vulndb.Node{anyOf(criterion("a:v:p:*"+rest, "<=", "2"))}},
			{ID: "CVE-2024-3", Nodes: []vulndb.Node{anyOf(criterion("a:v:p:*"+rest, "<=", "2"))}},
		},
		vulnerabilities: []vulndb.Vulnerability{
			{ID: "CVE-2024-1", Related: []string{"X-1"}}, {ID: "CVE-2024-3", Rejected: true},
		},
	}
	p := pkg(catalog.Brew, "p", "1")
	p.CPEs = nil
	r := run(t, db, named("v"), p)
	expect(t, found(r), "p 1 CVE-2024-1 < 2", "p 1 CVE-2024-2 <= 2")
	expect(t, r.Findings[0].Fixed, "2")
	expect(t, r.Findings[1].Fixed)
	expect(t, r.Findings[0].Vulnerability.Related, "X-1")
	expect(t, r.Findings[1].Vulnerability.Related)
	if c := r.Findings[0].CPE; c != "cpe:2.3:a:v:p:*"+rest {
		t.Errorf("the CPE that matched is %q", c)
	}
}

func TestMakersVersion(t *testing.T) {
	db := applies(anyOf(criterion("a:v:p:4.26.1" + rest)))
	expect(t, found(run(t, db, named("v"), pkg(catalog.Brew, "p", "4.26.1,131620"))),
		"p 4.26.1,131620 CVE-2024-1 = 4.26.1")
	expect(t, found(run(t, db, named("v"), pkg(catalog.Brew, "p", "4.26.1_2"))), "p 4.26.1_2 CVE-2024-1 = 4.26.1")
}
