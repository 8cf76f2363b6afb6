package match

import (
	"cmp"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// MatchTypeSemantic is the type of every match: versions are compared by the rules of their ecosystem.
const MatchTypeSemantic = "Semantic"

// Finding is one vulnerability of one version of a package, at all its locations.
type Finding struct {
	Vulnerability vulndb.Vulnerability // its Related has Advisory, unless that is its ID
	Package       catalog.Package

	CPE        string // that matched: the criterion's, or the package's first where an advisory did
	Version    string // that matched: the package's
	Constraint string // that contains the version: ">= 2.0.0, < 2.4.1", "= 0.1.8", "< 6.0_8"
	Type       string // Semantic

	// Fixed are the versions that end the constraint, nearest first; none is usual where no fix
	// exists yet.
	Fixed []string

	Source   vulndb.Source // of the deciding record
	Advisory string        // the ID of its record; that of the CVE for NVD

	// Unconfirmed reports that the record was not reviewed and has no end of the range that
	// contains the version. The finding is shown and never fails a build.
	Unconfirmed bool

	// DistroPatched is DistroPatchedUnknown for a package that belongs to one of a distribution which has no
	// advisory about the vulnerability and that: it may have been patched without a change of its version. The
	// finding is shown and never fails a build. "" for all others.
	DistroPatched string

	// Reachable reports for each location of a package of Go whether a program there has the vulnerable code, in
	// the order of the package's Locations. Package reach sets it; nil is not evaluated, as for all other packages.
	Reachable []LinkState
}

// NotEvaluated is a package that could be compared with none of its records in the database.
type NotEvaluated struct {
	Package catalog.Package
	Reason  string
}

// Suppressed counts findings that were left out, by the first rule that matched.
type Suppressed struct {
	Packages     int // of ignored packages
	CVEs         int // of ignored IDs
	VEX          int // by a VEX statement
	Baseline     int // that were known before
	BelowMinimum int // below the minimum score or severity
	UnknownScore int // without a score, while a minimum is set
	IgnoreRules  int // by ignore rules, at every location
	NotFixed     int // for which no advisory names a fixed version
	Owner        int // on which the advisories about the owner of the package decide, by no rule
}

// Total returns how many were left out.
func (h Suppressed) Total() int {
	return h.Packages + h.CVEs + h.VEX + h.Baseline + h.BelowMinimum + h.UnknownScore + h.IgnoreRules + h.NotFixed +
		h.Owner
}

// Result is the result of matching a list of packages.
type Result struct {
	Findings      []Finding // sorted by package, version, location and id
	Packages      int       // how many were matched
	NotEvaluated  []NotEvaluated
	Suppressed    Suppressed
	IgnoredByRule map[int]int // findings that an ignore rule left out, at some location or at all of them; nil: none
	UnknownScores int         // among Findings: 0.0 or none
	// OwnerDecided has the package of each finding that Suppressed.Owner counts, sorted.
	OwnerDecided []*catalog.Package

	NoAdvisories []NoAdvisories // sorted by distribution and kind
}

// addCounts adds the counts of a matcher.
func (r *Result) addCounts(other *Result) {
	r.NotEvaluated = append(r.NotEvaluated, other.NotEvaluated...)
	r.NoAdvisories = append(r.NoAdvisories, other.NoAdvisories...)
	r.OwnerDecided = append(r.OwnerDecided, other.OwnerDecided...)
	r.UnknownScores += other.UnknownScores
	h, o := &r.Suppressed, other.Suppressed
	h.Packages += o.Packages
	h.CVEs += o.CVEs
	h.VEX += o.VEX
	h.Baseline += o.Baseline
	h.BelowMinimum += o.BelowMinimum
	h.UnknownScore += o.UnknownScore
	h.IgnoreRules += o.IgnoreRules
	h.NotFixed += o.NotFixed
	h.Owner += o.Owner
	for rule, n := range other.IgnoredByRule {
		if r.IgnoredByRule == nil {
			r.IgnoredByRule = map[int]int{}
		}
		r.IgnoredByRule[rule] += n
	}
}

// setFindings sets the findings, sorted by package, version, location and ID, and sorts the not evaluated
// packages likewise.
func (r *Result) setFindings(found []*Finding) {
	slices.SortFunc(found, func(a, b *Finding) int {
		return cmp.Or(comparePackages(&a.Package, &b.Package), cmp.Compare(a.Vulnerability.ID, b.Vulnerability.ID),
			cmp.Compare(a.Package.Kind, b.Package.Kind))
	})
	r.Findings = make([]Finding, len(found))
	for i, f := range found {
		r.Findings[i] = *f
	}
	slices.SortFunc(r.OwnerDecided, func(a, b *catalog.Package) int {
		return cmp.Or(comparePackages(a, b), cmp.Compare(a.Kind, b.Kind))
	})
	slices.SortFunc(r.NotEvaluated, func(a, b NotEvaluated) int {
		return cmp.Or(comparePackages(&a.Package, &b.Package), cmp.Compare(a.Package.Kind, b.Package.Kind))
	})
}

func comparePackages(a, b *catalog.Package) int {
	c := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version),
		slices.Compare(a.Locations, b.Locations))
	if c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(a.Distribution, b.Distribution), cmp.Compare(a.Arch, b.Arch),
		cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Source, b.Source), cmp.Compare(a.SourceVersion, b.SourceVersion))
}
