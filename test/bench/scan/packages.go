package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// mix is the frequency of each kind in a large tree: of a hundred packages.
var mix = strings.Repeat("n", 45) + strings.Repeat("g", 17) + strings.Repeat("p", 11) + strings.Repeat("r", 10) +
	strings.Repeat("j", 7) +
	strings.Repeat("e", 6) + strings.Repeat("b", 3) + "aP"

var letters = map[byte]catalog.PackageType{
	'n': catalog.NPM, 'g': catalog.Go, 'p': catalog.Python, 'r': catalog.Rust, 'j': catalog.Java,
	'e': catalog.Gem, 'b': catalog.Brew, 'a': catalog.MacOSApp, 'P': catalog.Pod,
}

var kindOf = map[vulndb.Ecosystem]catalog.PackageType{
	vulndb.Go: catalog.Go, vulndb.Crates: catalog.Rust, vulndb.NPM: catalog.NPM, vulndb.Maven: catalog.Java,
	vulndb.PyPI: catalog.Python, vulndb.RubyGems: catalog.Gem, vulndb.Homebrew: catalog.Brew,
}

// writePackages writes packages of all kinds as in a large tree: one in ten has a name that the
// database knows, each name once, at a version that fixed one vulnerability.
func writePackages(to, database string) error {
	db, err := vulndb.Open(database)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // read only
	known, err := knownPackages(db)
	if err != nil {
		return err
	}
	if len(known) == 0 {
		return fmt.Errorf("%s has no advisories", database)
	}
	brews := []string{
		"openssl@3", "curl", "git", "python@3.12", "vim", "ffmpeg", "node", "imagemagick", "go",
		"postgresql@16",
	}
	out := make([]catalog.Package, matched)
	for i := range out {
		p := &out[i]
		switch {
		case i < len(brews):
			*p = packageOf(catalog.Brew, brews[i], "3.1.0")
		case i == len(brews):
			*p = packageOf(catalog.MacOSApp, "Google Chrome", "100.0.1")
			p.BundleIDs = []string{"com.google.Chrome"}
		case i%10 == 0:
			*p = known[i*len(known)/matched]
		default:
			*p = packageOf(letters[mix[i*37%len(mix)]], fmt.Sprintf("name-%d", i*5/7), fmt.Sprintf("1.%d.0", i))
		}
		p.Locations = []string{fmt.Sprintf("/Users/admin/project-%d/lib/%s", i%50, p.Name)}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return os.WriteFile(to, raw, 0o600)
}

func knownPackages(db *vulndb.DB) ([]catalog.Package, error) {
	var known []catalog.Package
	seen := map[string]bool{}
	for a, err := range db.AllAdvisories() {
		if err != nil {
			return nil, err
		}
		name := string(a.Ecosystem) + a.Name
		if kindOf[a.Ecosystem] != "" && len(a.Ranges) > 0 && !seen[name] {
			seen[name] = true
			r := a.Ranges[0]
			known = append(known, packageOf(kindOf[a.Ecosystem], a.Name,
				cmp.Or(r.Fixed, r.LastAffected, r.Introduced, "1.0.0")))
		}
	}
	return known, nil
}

func packageOf(kind catalog.PackageType, name, version string) catalog.Package {
	return catalog.Package{
		Kind: kind, Name: name, Version: version,
		CPEs: []string{"cpe:2.3:a:" + name + ":" + name + ":" + version + ":*:*:*:*:*:*:*"},
	}
}
