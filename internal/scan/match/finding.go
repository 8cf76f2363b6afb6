package match

import (
	"cmp"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Semantic is the type of every match: versions are compared by the rules of their makers.
const Semantic = "Semantic"

// Finding is one vulnerability of one version of a package, wherever that was found.
type Finding struct {
	Vulnerability vulndb.Vulnerability // its Related has Advisory, unless that is its id
	Package       catalog.Package

	CPE        string // that matched: the criterion's, or the package's first where an advisory did
	Version    string // that matched: the package's
	Constraint string // that holds the version: ">= 2.0.0, < 2.4.1", "= 0.1.8", "< 6.0_8"
	Type       string // Semantic

	// Fixed are the versions that end what holds the version, nearest first; none is usual
	// where nothing was mended yet.
	Fixed []string

	Source   vulndb.Source // who said so
	Advisory string        // the id of its record; that of the CVE for NVD

	// Unconfirmed says that nobody reviewed the record and that it names no end of what holds
	// the version. It is shown and never fails a build.
	Unconfirmed bool
}

// NotEvaluated is a package that could not be compared with what the database has of it.
type NotEvaluated struct {
	Package catalog.Package
	Reason  string
}

// Suppressed counts findings that were left out, by the first rule that did it.
type Suppressed struct {
	Packages int // of ignored packages
	CVEs     int // of ignored ids
	VEX      int // that somebody says are none
	Baseline int // that were known before
	Minimum  int // below the least score or severity
	Unknown  int // without a score, while a least one is asked for
}

// Total is how many were left out.
func (h Suppressed) Total() int {
	return h.Packages + h.CVEs + h.VEX + h.Baseline + h.Minimum + h.Unknown
}

// Result is what became of a list of packages.
type Result struct {
	Findings      []Finding // sorted by package, version, location and id
	Packages      int       // how many were looked at
	Unjudged      []NotEvaluated
	Hidden        Suppressed
	UnknownScores int // among Findings: 0.0 or none
}

// add takes the counts of a judge.
func (r *Result) add(other *Result) {
	r.Unjudged = append(r.Unjudged, other.Unjudged...)
	r.UnknownScores += other.UnknownScores
	h, o := &r.Hidden, other.Hidden
	h.Packages += o.Packages
	h.CVEs += o.CVEs
	h.VEX += o.VEX
	h.Baseline += o.Baseline
	h.Minimum += o.Minimum
	h.Unknown += o.Unknown
}

// sort takes what was found, by package, version, location and id, and orders the unjudged
// likewise.
func (r *Result) sort(found []*Finding) {
	slices.SortFunc(found, func(a, b *Finding) int {
		return cmp.Or(comparePackages(&a.Package, &b.Package), cmp.Compare(a.Vulnerability.ID, b.Vulnerability.ID), cmp.Compare(a.Package.Kind, b.Package.Kind))
	})
	r.Findings = make([]Finding, len(found))
	for i, f := range found {
		r.Findings[i] = *f
	}
	slices.SortFunc(r.Unjudged, func(a, b NotEvaluated) int {
		return cmp.Or(comparePackages(&a.Package, &b.Package), cmp.Compare(a.Package.Kind, b.Package.Kind))
	})
}

func comparePackages(a, b *catalog.Package) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), slices.Compare(a.Locations, b.Locations))
}
