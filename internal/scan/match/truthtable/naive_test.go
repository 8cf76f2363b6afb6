package truthtable

import (
	"regexp"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// naive is a matcher over raw advisories: everything in memory, every query a scan.
type naive struct {
	records        map[string][]*record // ecosystem/name -> all records about it
	configurations map[string][]configuration
}

// precedence is the order of the sources of an ecosystem.
var precedence = map[string][]string{
	"Go": {"go", "ghsa"}, crates: {"rustsec", "ghsa"}, "npm": {"ghsa"}, "Maven": {"ghsa"}, "PyPI": {"ghsa", "pypa"},
	"RubyGems": {"rubysec", "ghsa"},
	"Homebrew": {"homebrew"}, "Rubies": {"rubysec"}, "SwiftURL": {"ghsa"},
}

var ecosystems = map[catalog.PackageType]string{
	catalog.Go: "Go", catalog.Rust: crates, catalog.NPM: "npm", catalog.Java: "Maven", catalog.Python: "PyPI",
	catalog.Gem: "RubyGems", catalog.Brew: "Homebrew", catalog.Swift: "SwiftURL",
}

// add adds the files of a set.
func (n *naive) add(name string, data []byte) error {
	if strings.HasPrefix(name, "nvd-overrides/") || strings.HasPrefix(name, CarriedSet+"/nvd/") {
		id, all, err := parseConfigurations(name, data)
		if err != nil {
			return err
		}
		n.configurations[id] = all
		return nil
	}
	if name == CarriedSet+"/tracker.json" {
		return n.addTracker(name, data)
	}
	all, err := parseRecords(name, data)
	for _, r := range all {
		key := r.ecosystem + "/" + r.name
		n.records[key] = append(n.records[key], r)
	}
	return err
}

func newNaive() *naive {
	return &naive{records: map[string][]*record{}, configurations: map[string][]configuration{}}
}

// naives are those that were read before, by directory.
var naives = map[string]*naive{}

// readNaive reads the sets with affected versions from a directory of archives.
func readNaive(folder string) (*naive, error) {
	if n := naives[folder]; n != nil {
		return n, nil
	}
	n := newNaive()
	for _, set := range AdvisorySets {
		if set == "kev" || set == "vulnrichment" {
			continue
		}
		if err := ReadSet(folder, set, n.add); err != nil {
			return nil, err
		}
	}
	for _, set := range []string{CarriedSet, SwiftSet} {
		if err := ReadSet("testdata", set, n.add); err != nil {
			return nil, err
		}
	}
	naives[folder] = n
	return n, nil
}

// judge reports whether a report has to show the vulnerability for the package.
func (n *naive) judge(p *catalog.Package, vulnerability string) (affected, unconfirmed bool) {
	switch {
	case p.Replaced,
		p.Kind == catalog.Go && p.Name == "stdlib" && strings.HasSuffix(p.Locations[0], "/go.mod"):
		return false, false
	case p.Kind.IsOS():
		return n.distributionHas(p, vulnerability), false
	}
	ecosystem := ecosystems[p.Kind]
	keys := []string{ecosystem + "/" + normalName(ecosystem, p.Name)}
	if p.Kind == catalog.Brew || p.Kind == catalog.Runtime {
		name, _, _ := strings.Cut(p.Name, "@")
		keys = append(keys, otherRecords[name]...)
	}
	for _, key := range keys {
		if affected, unconfirmed, spoken := n.spoken(key, p, vulnerability); spoken {
			return affected, affected && unconfirmed
		}
	}
	return affects(n.configurations[vulnerability], productsOf(p), upstreamVersion(p)), false
}

// otherRecords are the records of other ecosystems about formulae and runtimes.
var otherRecords = map[string][]string{"go": {"Go/stdlib", "Go/toolchain"}, "ruby": {"Rubies/ruby"}}

// spoken evaluates the records about a package of the first source that has one of the vulnerability.
func (n *naive) spoken(key string, p *catalog.Package, vulnerability string) (affected, unconfirmed, spoken bool) {
	ecosystem, _, _ := strings.Cut(key, "/")
	for _, source := range precedence[ecosystem] {
		unconfirmed = true
		for _, r := range n.records[key] {
			if r.source != source || !slices.Contains(r.ids, vulnerability) {
				continue
			}
			spoken = true
			if v := versionOf(p); r.held(v) {
				affected, unconfirmed = true, unconfirmed && r.unconfirmed(v)
			}
		}
		if spoken {
			return affected, unconfirmed, true
		}
	}
	return false, false, false
}

// builds matches the suffix that builders of Go add to its version: 1.22.3-1.
var builds = regexp.MustCompile(`-\d.*$`)

// versionOf returns the version to compare with advisories.
func versionOf(p *catalog.Package) string {
	if p.Kind == catalog.Go && (p.Name == "stdlib" || p.Name == "toolchain") {
		return builds.ReplaceAllString(p.Version, "")
	}
	return p.Version
}
