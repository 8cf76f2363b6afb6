package report

import (
	"cmp"
	"slices"

	"github.com/buildyard/buildyard/api"
)

// Difference lists the entries of each of two reports that the other lacks.
type Difference struct {
	From            api.ScanSource    `json:"from"`
	To              api.ScanSource    `json:"to"`
	AddedPackages   []api.ScanPackage `json:"added-packages"`
	RemovedPackages []api.ScanPackage `json:"removed-packages"`
	AddedMatches    []api.ScanMatch   `json:"added-matches"`   // new vulnerabilities
	RemovedMatches  []api.ScanMatch   `json:"removed-matches"` // vulnerabilities that are gone
}

// Diff compares two reports. The paths of a package make no difference; a vulnerability is the same
// when its ID and the package's version are.
func Diff(from, to Report) Difference {
	d := Difference{From: from.Source, To: to.Source}
	d.AddedPackages, d.RemovedPackages = diffLists(from.Packages, to.Packages, packageRef)
	d.AddedMatches, d.RemovedMatches = diffLists(from.Matches, to.Matches, MatchKey)
	return d
}

// packageRef names a version of a package, whatever installed it: an upgrade of its owner makes no difference.
func packageRef(p api.ScanPackage) string { return p.Type + ":" + p.Name + "@" + p.Version }

// MatchKey identifies a vulnerability of a version of a package, at any path.
func MatchKey(m api.ScanMatch) string { return packageRef(m.Artifact) + " " + m.Vulnerability.ID }

// diffLists returns the entries that only the second list has, and those that only the first one has,
// each key once.
func diffLists[T any](from, to []T, key func(T) string) (added, removed []T) {
	return without(to, from, key), without(from, to, key)
}

func without[T any](list, other []T, key func(T) string) []T {
	seen := map[string]bool{}
	for _, v := range other {
		seen[key(v)] = true
	}
	out := []T{}
	for _, v := range list {
		if k := key(v); !seen[k] {
			seen[k] = true
			out = append(out, v)
		}
	}
	slices.SortStableFunc(out, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	return out
}
