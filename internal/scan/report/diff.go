package report

import (
	"cmp"
	"slices"

	"github.com/buildyard/buildyard/api"
)

// Difference is what two reports have that the other has not.
type Difference struct {
	From            api.ScanSource    `json:"from"`
	To              api.ScanSource    `json:"to"`
	AddedPackages   []api.ScanPackage `json:"added-packages"`
	RemovedPackages []api.ScanPackage `json:"removed-packages"`
	AddedMatches    []api.ScanMatch   `json:"added-matches"`   // vulnerabilities that came
	RemovedMatches  []api.ScanMatch   `json:"removed-matches"` // vulnerabilities that went
}

// Diff compares two reports. Where a package lies makes no difference; a vulnerability is
// the same when its id and the package's version are.
func Diff(from, to Report) Difference {
	d := Difference{From: from.Source, To: to.Source}
	d.AddedPackages, d.RemovedPackages = apart(from.Packages, to.Packages, ref)
	d.AddedMatches, d.RemovedMatches = apart(from.Matches, to.Matches, Key)
	return d
}

// Key names a vulnerability of a version of a package, wherever it lies.
func Key(m api.ScanMatch) string { return ref(m.Artifact) + " " + m.Vulnerability.ID }

// apart returns what only the second list has, and what only the first one has, each key once.
func apart[T any](from, to []T, key func(T) string) (added, removed []T) {
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
