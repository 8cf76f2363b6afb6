package truthtable

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// candidates are the suffixes that make a pre-release of a version, by ecosystem.
var candidates = map[string]string{
	"Go": "-rc.1", crates: "-alpha.1", "npm": "-beta.2", "PyPI": "rc1", "RubyGems": ".rc1", "Maven": "-rc1",
	"Homebrew": "_1",
}

// around returns the versions at and next to the bounds: one below and one above where the last
// number has them, and a pre-release.
func around(ecosystem string, bounds []string) []string {
	set := map[string]bool{}
	for _, b := range bounds {
		set[b] = true
		set[b+candidates[ecosystem]] = true
		if m := lastNumber.FindStringSubmatch(b); m != nil {
			set[raised(b)] = true
			if n, err := strconv.ParseUint(m[2], 10, 63); err == nil && n > 0 {
				set[m[1]+strconv.FormatUint(n-1, 10)+m[3]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// byID groups the records of one package by vulnerability, from the source that decides.
func byID(ecosystem string, all []*record) map[string][]*record {
	out := map[string][]*record{}
	for _, source := range precedence[ecosystem] {
		here := map[string][]*record{}
		for _, r := range all {
			if r.source != source {
				continue
			}
			for _, id := range r.ids {
				here[id] = append(here[id], r)
			}
		}
		for id, records := range here {
			if out[id] == nil {
				out[id] = records
			}
		}
	}
	return out
}

// checkBounds compares both matchers at the bounds of every advisory, package by package.
func checkBounds(t *testing.T, folder string) {
	t.Helper()
	n, err := readNaive(folder)
	if err != nil {
		t.Fatal(err)
	}
	db := database(t, folder)
	kinds := map[string]catalog.PackageType{}
	for kind, ecosystem := range ecosystems {
		kinds[ecosystem] = kind
	}
	kinds["Rubies"] = catalog.Runtime
	asked, different := 0, 0
	for _, key := range slices.Sorted(maps.Keys(n.records)) {
		ecosystem, name, _ := strings.Cut(key, "/")
		if name == "rbx" || name == "mrubyc" {
			continue // engines that are not found
		}
		var bounds []string
		for _, r := range n.records[key] {
			bounds = append(bounds, r.bounds...)
		}
		var packages []catalog.Package
		for _, v := range around(ecosystem, bounds) {
			packages = append(packages,
				catalog.Package{Kind: kinds[ecosystem], Name: name, Version: v, Locations: []string{"/found"}})
		}
		deciding := byID(ecosystem, n.records[key])
		for i, got := range ask(t, db, packages, none) {
			want, version := answer{}, versionOf(&packages[i])
			for id, records := range deciding {
				affected, unconfirmed := false, true
				for _, r := range records {
					if r.held(version) {
						affected, unconfirmed = true, unconfirmed && r.unconfirmed(version)
					}
				}
				if affected {
					want[id] = unconfirmed
				}
			}
			asked += len(deciding)
			if !maps.Equal(got, want) {
				different++
				tell(t, &packages[i], got, want)
			}
		}
	}
	t.Logf("%d questions at the bounds of %d packages, %d versions answered differently", asked, len(n.records),
		different)
}

// tell logs where two answers differ.
func tell(t *testing.T, p *catalog.Package, got, want answer) {
	t.Helper()
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if u, ok := got[id]; !ok || u != want[id] {
			t.Errorf("%s %s %q: %s is affected (unconfirmed %v), the matcher says %v (%v)", p.Kind, p.Name, p.Version,
				id, want[id], ok, u)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[id]; !ok {
			t.Errorf("%s %s %q: %s is not affected, the matcher says it is", p.Kind, p.Name, p.Version, id)
		}
	}
}

func TestMatchersAgreeAtBoundsOfWhatIsCarried(t *testing.T) {
	checkBounds(t, "testdata")
}

func TestMatchersAgreeAtEveryBound(t *testing.T) {
	checkBounds(t, shared(t))
}

// checkProducts does the same for the criteria that name the products of the table.
func checkProducts(t *testing.T, folder string) {
	t.Helper()
	n, err := readNaive(folder)
	if err != nil {
		t.Fatal(err)
	}
	db := database(t, folder)
	asked, different := 0, 0
	for _, key := range slices.Sorted(maps.Keys(products)) {
		p := catalog.Package{Kind: catalog.MacOSApp, Name: key, BundleIDs: []string{key}, Locations: []string{"/found"}}
		switch kind, name, ok := strings.Cut(key, "/"); {
		case !ok:
		case kind == "cask":
			p = catalog.Package{Kind: catalog.Brew, Name: name, Locations: []string{"/Caskroom/found"}}
		default:
			p = catalog.Package{Kind: catalog.PackageType(kind), Name: name, Locations: []string{"/found"}}
		}
		ids, versions := about(n, products[key])
		var packages []catalog.Package
		for _, v := range versions {
			p.Version = v
			packages = append(packages, p)
		}
		for i, got := range askApart(t, db, packages) {
			want := answer{}
			for _, id := range ids {
				if affected, _ := n.judge(&packages[i], id); affected {
					want[id] = got[id] // a range without an end is marked by a rule of the matcher
				}
			}
			for id := range got {
				if !slices.Contains(ids, id) {
					delete(got, id) // of an advisory, or of a CVE record: not in the set of criteria
				}
			}
			asked += len(ids)
			if !maps.Equal(got, want) {
				different++
				tell(t, &packages[i], got, want)
			}
		}
	}
	t.Logf("%d questions at the bounds of %d products, %d versions answered differently", asked, len(products),
		different)
}

// askApart asks for packages with other products in turn: some configurations need two products.
func askApart(t *testing.T, db *vulndb.DB, packages []catalog.Package) []answer {
	t.Helper()
	out := make([]answer, len(packages))
	groups := map[string][]int{}
	for i := range packages {
		key := strings.Join(productsOf(&packages[i]), " ")
		groups[key] = append(groups[key], i)
	}
	for _, group := range groups {
		var list []catalog.Package
		for _, i := range group {
			list = append(list, packages[i])
		}
		for k, a := range ask(t, db, list, named) {
			out[group[k]] = a
		}
	}
	return out
}

var plainVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*$`)

// about returns the CVEs that name one of the products, and the versions at and next to the bounds
// of their criteria, as far as those are plain numbers.
func about(n *naive, names []string) (ids, versions []string) {
	var bounds []string
	for id, all := range n.configurations {
		found := false
		for _, c := range all {
			for _, node := range c.Nodes {
				for _, m := range node.CPEMatch {
					f := m.fields()
					if len(f) != 13 || f[2] != "a" || !slices.ContainsFunc(names, func(n string) bool {
						return strings.HasPrefix(n+":", f[3]+":"+f[4]+":")
					}) {
						continue
					}
					found = true
					for _, b := range []string{f[5], m.StartIn, m.StartEx, m.EndIn, m.EndEx} {
						if plainVersion.MatchString(b) {
							bounds = append(bounds, b)
						}
					}
				}
			}
		}
		if found {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, slices.DeleteFunc(around("", bounds), func(v string) bool { return !plainVersion.MatchString(v) })
}

func TestMatchersAgreeAtBoundsOfCarriedProducts(t *testing.T) {
	checkProducts(t, "testdata")
}

func TestMatchersAgreeAtBoundsOfEveryProduct(t *testing.T) {
	checkProducts(t, shared(t))
}
