package match

import (
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// DistroPatchedUnknown is the value of Finding.DistroPatched where a distribution may have patched a
// package without changing its version.
const DistroPatchedUnknown = "unknown"

// ownership is what the advisories of a distribution say about a package that it installed as a part of
// another.
type ownership int

const (
	notOwned          ownership = iota
	ownerIsEvaluated            // advisories about the owner decide
	ownerIsNotCovered           // no advisory is about the owner
)

// ownershipOf returns who decides about a package. Distributions fix vulnerabilities without changing
// the version of what is inside a package; Homebrew does not.
func (j *matcher) ownershipOf(p *catalog.Package) (ownership, error) {
	if p.Owner == "" || p.Distribution == "" || p.Kind.IsOS() {
		return notOwned, nil
	}
	key := p.Distribution + "\x00" + p.Owner
	if known, ok := j.ownerships[key]; ok {
		return known, nil
	}
	result := ownerIsNotCovered
	for _, q := range queriesOf(nil, j.ownerOf(p, key)) {
		advisories, err := j.db.Advisories(q.name, q.packageName)
		if err != nil {
			return notOwned, err
		}
		if len(advisories) > 0 {
			result = ownerIsEvaluated
		}
	}
	j.ownerships[key] = result
	return result, nil
}

// ownerOf returns the package that a package belongs to. One that is not among the packages is assumed
// to have the name of its source.
func (j *matcher) ownerOf(p *catalog.Package, key string) *catalog.Package {
	if owner := j.owners[key]; owner != nil {
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
