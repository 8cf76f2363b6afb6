package match_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// vendors returns the names of products from texts VENDOR:PRODUCT; a "!" at the end marks an own repository.
func vendors(texts ...string) []productVendor {
	var out []productVendor
	for _, text := range texts {
		name, own := strings.CutSuffix(text, "!")
		vendor, product, _ := strings.Cut(name, ":")
		out = append(out, productVendor{product, vulndb.ProductVendor{Vendor: vendor, OwnRepository: own}})
	}
	return out
}

func TestNamesThatTheDatabaseHas(t *testing.T) {
	brew := func(name string) catalog.Package {
		return catalog.Package{Kind: catalog.Brew, Name: name, Version: "1.0", Locations: []string{"/Cellar/x"}}
	}
	cask := func(name string) catalog.Package {
		return catalog.Package{Kind: catalog.Brew, Name: name, Version: "1.0", Locations: []string{"/Caskroom/x"}}
	}
	pod := func(name string) catalog.Package {
		return catalog.Package{Kind: catalog.Pod, Name: name, Version: "1.0"}
	}
	for _, c := range []struct {
		p    catalog.Package
		has  []productVendor
		want string
	}{
		{brew("zebra"), vendors("zebra:zebra", "zebra_project:zebra", "acme:zebra"), "zebra:zebra zebra_project:zebra"},
		{brew("zebra@2"), vendors("zebraserver:zebra"), "zebra:zebra zebraserver:zebra"},
		{brew("zoo-cli"), vendors("zoo:zoo-cli"), "zoo-cli:zoo-cli"}, // three letters say nothing
		{brew("zebra"), vendors("apache:zebra"), "zebra:zebra apache:zebra"},
		{brew("gnu-zebra"), vendors("gnu:zebra", "acme:zebra"), "gnu-zebra:gnu-zebra gnu:zebra"},
		{brew("gnu-big-zebra"), vendors("gnu:big_zebra"), "gnu-big-zebra:gnu-big-zebra gnu:big_zebra"},
		{brew("zebra"), vendors("acme:zebra!", "other:zebra"), "zebra:zebra acme:zebra"},
		{brew("zebra"), vendors("acme:zebra!", "other:zebra!"), "zebra:zebra"},
		{brew("big-zebra"), vendors("acme:big_zebra!"), "big-zebra:big-zebra acme:big_zebra"},
		{brew("zebra"), vendors("gnu:libzebra"), "zebra:zebra gnu:libzebra"},
		{brew("zebra"), vendors("acme:libzebra!"), "zebra:zebra"},
		{brew("zebra"), vendors("zebrajs:zebra", "zebraphp:zebra"), "zebra:zebra"},
		{brew("zebra"), vendors("gnu:libzebra", "gnu:zebra"), "zebra:zebra gnu:zebra"},
		{cask("zebra"), vendors("gnu:libzebra"), "zebra:zebra"},
		{cask("zebra-app"), vendors("zebraserver:zebra"), "zebra-app:zebra-app zebraserver:zebra"},
		{cask("acme-zebra"), vendors("acme:zebra", "zebra:acme"), "acme-zebra:acme-zebra acme:zebra"},
		{pod("Zebra-Universal"), vendors("zebra:zebra"), "zebra-universal:zebra-universal zebra:zebra"},
		{brew("tree"), vendors("acme:wood"), "tree:tree"},
	} {
		got := questioned(t, &memory{vendors: c.has}, c.p)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %s of %v: got %v, want %s", c.p.Name, c.p.Locations, c.has, got, c.want)
		}
	}
}

// questioned returns the products that a match asks for, as an explanation names them.
func questioned(t *testing.T, db match.DB, p catalog.Package) []string {
	t.Helper()
	e, err := match.Explain(t.Context(), db, match.ExplainRequest{ID: "CVE-2024-0001", Package: p}, match.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range e.Steps {
		if name, ok := strings.CutPrefix(s, "NVD may have it as "); ok {
			out = append(out, strings.TrimSuffix(name, "."))
		}
	}
	return out
}

func TestNamesThatCannotBeRead(t *testing.T) {
	failed := errors.New("the disk fails")
	_, err := match.Match(t.Context(), &memory{err: failed}, []catalog.Package{
		{Kind: catalog.Pod, Name: "Zebra", Version: "1.0"},
	}, match.Options{})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

// A channel is compared with the criteria about its edition.
func TestEditionsOfChannels(t *testing.T) {
	cpe := func(product, edition string) vulndb.Criterion {
		return vulndb.Criterion{
			CPE:        "cpe:2.3:a:mozilla:" + product + ":*:*:*:*:" + edition + ":*:*:*",
			Vulnerable: true, EndExcluding: "128.5",
		}
	}
	criteria := map[string]vulndb.Criterion{
		"CVE-2024-0001": cpe("firefox", "*"), "CVE-2024-0002": cpe("firefox", "-"),
		"CVE-2024-0003": cpe("firefox", "esr"), "CVE-2024-0004": cpe("firefox_esr", "*"),
	}
	var db memory
	for id, c := range criteria {
		db.applicabilities = append(db.applicabilities, vulndb.Applicability{
			ID: id, Source: vulndb.NVD, Nodes: []vulndb.Node{{Criteria: []vulndb.Criterion{c}}},
		})
	}
	slices.SortFunc(db.applicabilities, func(a, b vulndb.Applicability) int { return strings.Compare(a.ID, b.ID) })
	for name, want := range map[string]string{
		"firefox": "1 2", "firefox@beta": "1 2", "firefox@esr": "3 4",
	} {
		r := run(t, &db, match.Options{}, catalog.Package{
			Kind: catalog.Brew, Name: name, Version: "128.0", Locations: []string{"/opt/homebrew/Caskroom/x"},
		})
		var got []string
		for _, f := range r.Findings {
			got = append(got, strings.TrimPrefix(f.Vulnerability.ID, "CVE-2024-000"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %v, want %s", name, got, want)
		}
	}
	for version, want := range map[string]int{"128.0.1": 3, "128.4.0": 2, "128.5.0": 0} { // ESR have a second number
		r := run(t, &db, match.Options{}, catalog.Package{
			Kind: catalog.MacOSApp, Name: "Firefox", Version: version, BundleIDs: []string{"org.mozilla.firefox"},
		})
		if len(r.Findings) != want {
			t.Errorf("the application %s has %d, want %d", version, len(r.Findings), want)
		}
	}
}

// A criterion about the language that a program is written in is about the program, one about several languages is not.
func TestLanguagesOfPrograms(t *testing.T) {
	criterion := func(product, target string) vulndb.Criterion {
		return vulndb.Criterion{
			CPE: "cpe:2.3:a:" + product + ":*:*:*:*:*:" + target + ":*:*", Vulnerable: true, EndExcluding: "2.0",
		}
	}
	for _, c := range []struct {
		name, product, target string
		languages             []string
		own                   bool
		cask                  bool
		want                  int
	}{
		{name: "zebra", product: "zebraserver:zebra", target: "rust", languages: []string{"rust"}, want: 1},
		{name: "zebra", product: "zebra:zebra", target: "go", languages: []string{"go"}, want: 1},
		{name: "zebra", product: "zebra:zebra", target: "rust", languages: []string{"rust"}},
		{name: "zebra", product: "zebra_project:zebra", target: "node.js", languages: []string{"node.js"}},
		{name: "zebra", product: "zebra:zebra", target: "rust", languages: []string{"rust"}, own: true, want: 1},
		{name: "zebra", product: "zebraserver:zebra", target: "go", languages: []string{"go", "python"}},
		{name: "zebra", product: "zebraserver:zebra", target: "wordpress"},
		{name: "zebra", product: "zebraserver:zebra", target: "go", languages: []string{"go"}, cask: true},
		{name: "minio", product: "minio:minio", target: "go", languages: []string{"go"}, want: 1},
		{name: "protobuf", product: "google:protobuf", target: "ruby", languages: []string{"ruby"}},
		{name: "kitty", product: "kitty_project:kitty", target: "go", languages: []string{"go"}, cask: true, want: 1},
	} {
		vendor, product, _ := strings.Cut(c.product, ":")
		db := memory{
			vendors: []productVendor{{product, vulndb.ProductVendor{
				Vendor: vendor, Languages: c.languages, OwnRepository: c.own,
			}}},
			applicabilities: []vulndb.Applicability{{ID: "CVE-2024-0001", Source: vulndb.NVD, Nodes: []vulndb.Node{
				{Criteria: []vulndb.Criterion{criterion(c.product, c.target)}},
			}}},
		}
		dir := map[bool]string{true: "/Caskroom/x", false: "/Cellar/x"}[c.cask]
		r := run(t, &db, match.Options{}, catalog.Package{
			Kind: catalog.Brew, Name: c.name, Version: "1.0", Locations: []string{dir},
		})
		if len(r.Findings) != c.want {
			t.Errorf("%+v: %d findings", c, len(r.Findings))
		}
	}
}
