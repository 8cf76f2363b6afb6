package match

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// NoAdvisories reports that the database has no advisories for the packages of one kind, or of one
// release of a distribution. They were not evaluated.
type NoAdvisories struct {
	Kind         catalog.PackageType
	Distribution string // of packages of an operating system; "" where it is unknown, and of other kinds
	Packages     int
}

// Subject names what has no advisories: "npm", "alpine:3.20", "deb packages of an unknown release".
func (n NoAdvisories) Subject() string {
	switch {
	case n.Distribution != "":
		return n.Distribution
	case n.Kind.IsOS():
		return string(n.Kind) + " packages of an unknown release"
	}
	return string(n.Kind)
}

// String returns the report of it: "no advisories for alpine:3.20: 214 packages were not evaluated".
func (n NoAdvisories) String() string {
	return fmt.Sprintf("no advisories for %s: %s not evaluated", n.Subject(),
		map[bool]string{true: "1 package was", false: fmt.Sprintf("%d packages were", n.Packages)}[n.Packages == 1])
}

// coverageKey is what packages share that are evaluated by the same advisories.
type coverageKey struct {
	kind         catalog.PackageType
	distribution string
}

func coverageKeyOf(p *catalog.Package) coverageKey {
	k := coverageKey{kind: p.Kind}
	if p.Kind.IsOS() {
		k.distribution = p.Distribution
	}
	return k
}

// findMissing finds the kinds and releases among groups of packages that the database has no advisories
// for.
func (j *matcher) findMissing(groups [][]*catalog.Package) error {
	counts := map[coverageKey]*NoAdvisories{}
	for _, group := range groups {
		p := group[0]
		k := coverageKeyOf(p)
		n, known := counts[k]
		if !known {
			covered, err := j.isCovered(p)
			if err != nil {
				return fmt.Errorf("match %s: %w", p.Kind, err)
			}
			if !covered {
				n = &NoAdvisories{Kind: k.kind, Distribution: k.distribution}
			}
			counts[k] = n
		}
		if n != nil {
			n.Packages += len(group)
		}
	}
	for k, n := range counts {
		if n != nil {
			j.missing[k] = true
			j.result.NoAdvisories = append(j.result.NoAdvisories, *n)
		}
	}
	slices.SortFunc(j.result.NoAdvisories, func(a, b NoAdvisories) int {
		return cmp.Or(cmp.Compare(a.Distribution, b.Distribution), cmp.Compare(a.Kind, b.Kind))
	})
	return nil
}

// isCovered reports whether the database has advisories for packages of a kind or release. For kinds that are matched
// by products it needs configurations; for formulae Homebrew's advisories suffice.
func (j *matcher) isCovered(p *catalog.Package) (bool, error) {
	// No source has advisories about receipts of macOS, so that no database lacks them.
	if matchedByProduct[p.Kind] && j.db.HasApplicabilities() || p.Kind == catalog.MacOSPkg {
		return true, nil
	}
	if p.Kind == catalog.Runtime {
		return false, nil // there are others about some of them alone
	}
	for _, q := range queriesOf(nil, p) {
		if found, err := j.db.HasEcosystem(q.name); found || err != nil {
			return found, err
		}
	}
	return false, nil
}
