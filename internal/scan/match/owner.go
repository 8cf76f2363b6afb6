package match

import (
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// DistroPatchedUnknown is the value of Finding.DistroPatched where a distribution may have patched a
// package without changing its version.
const DistroPatchedUnknown = "unknown"

// maxOwnerNames is how many names of vulnerabilities a matcher keeps for the owners of packages.
const maxOwnerNames = 20_000

// isOwned reports whether a package was installed as a part of one of a distribution. Distributions fix
// vulnerabilities without changing the version of what is inside a package; Homebrew and other vendors do not.
func isOwned(p *catalog.Package) bool {
	if p.Owner == "" || p.Distribution == "" || p.Kind.IsOS() {
		return false
	}
	kind, rest, _ := strings.Cut(p.Owner, "/")
	_, version, _ := strings.Cut(rest, "@")
	return otherVendor(catalog.PackageType(kind), version) == ""
}

// ownerDecides reports whether the distribution of an owned package has an advisory about a vulnerability and the
// source of the owner, whatever it says. The finding is then left out, and counted.
func (f *findingCollector) ownerDecides(id string, found *Finding) (bool, error) {
	if !isOwned(f.pkg) {
		return false, nil
	}
	j := f.matcher
	if f.ownerNames == nil {
		for _, q := range queriesOf(nil, j.ownerOf(f.pkg)) {
			known, err := j.namesAbout(&q)
			if err != nil {
				return false, err
			}
			f.ownerNames = append(f.ownerNames, known)
		}
	}
	names := append([]string{id, found.Vulnerability.ID}, found.Vulnerability.Related...)
	for _, known := range f.ownerNames {
		if slices.ContainsFunc(names, func(name string) bool { return known[name] }) {
			j.result.Suppressed.Owner++
			j.result.OwnerDecided = append(j.result.OwnerDecided, f.pkg)
			j.trace.add("It is left out: %s has an advisory about it and the source of %s.", f.pkg.Distribution,
				f.pkg.Owner)
			return true, nil
		}
	}
	return false, nil
}

// namesAbout returns the names of the vulnerabilities that the answer to a query has.
func (j *matcher) namesAbout(q *advisoryQuery) (map[string]bool, error) {
	key := string(q.name) + "\x00" + q.packageName
	if known, ok := j.ownerNames[key]; ok {
		return known, nil
	}
	advisories, err := j.db.Advisories(q.name, q.packageName)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for i := range advisories {
		a := &advisories[i]
		for _, name := range a.CVEs {
			known[strings.Clone(name)] = true
		}
		for _, name := range a.Related {
			known[strings.Clone(name)] = true
		}
		if len(a.CVEs) == 0 {
			known[strings.Clone(a.ID)] = true
		}
	}
	if j.ownerNameCount += len(known) + 1; j.ownerNameCount > maxOwnerNames {
		clear(j.ownerNames)
		j.ownerNameCount = len(known) + 1
	}
	j.ownerNames[key] = known
	return known, nil
}

// ownerOf returns the package that a package belongs to. One that is not among the packages is assumed
// to have the name of its source.
func (j *matcher) ownerOf(p *catalog.Package) *catalog.Package {
	if owner := j.owners[p.Distribution+"\x00"+p.Owner]; owner != nil {
		return owner
	}
	kind, rest, _ := strings.Cut(p.Owner, "/")
	name, version, _ := strings.Cut(rest, "@")
	return &catalog.Package{
		Kind: catalog.PackageType(kind), Name: name, Version: version, Source: name, SourceVersion: version,
		Distribution: p.Distribution,
	}
}

// ownersOf returns the packages that others belong to, by distribution and name.
func ownersOf(packages, others []catalog.Package) map[string]*catalog.Package {
	owned := map[string]bool{}
	for i := range packages {
		if p := &packages[i]; p.Owner != "" && p.Distribution != "" {
			owned[p.Distribution+"\x00"+p.Owner] = true
		}
	}
	if len(owned) == 0 {
		return nil
	}
	out := make(map[string]*catalog.Package, len(owned))
	for _, list := range [][]catalog.Package{others, packages} {
		for i := range list {
			p := &list[i]
			if !p.Kind.IsOS() {
				continue
			}
			if key := p.Distribution + "\x00" + p.OwnerName(); owned[key] {
				out[key] = p
			}
		}
	}
	return out
}
