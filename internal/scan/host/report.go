package host

import (
	"iter"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// Package is a package of the inventory.
type Package struct {
	ID      uint64    // never reused, also after a reset
	Created time.Time // when it was first cataloged
	catalog.Package
}

// Finding is one vulnerability of a package of the inventory.
type Finding struct {
	PackageID uint64
	FoundAt   time.Time // when it was first found for this package
	match.Finding
}

// Query narrows a report. The zero value selects everything since the reset.
type Query struct {
	Since    time.Time // packages and findings that came then or later
	MinScore float64   // findings with at least that score, and packages that have one; 0 selects all
}

// Report reads the inventory while the caller iterates: changes made during that time may be
// included. It holds no resources and need not be closed.
type Report struct {
	host  *Host
	query Query
	mark  *Mark    // nil: of everything
	ids   []uint64 // of the packages since the mark
}

// Report begins a report.
func (h *Host) Report(q Query) *Report { return &Report{host: h, query: q} }

// reportBatchSize is how many packages or findings are read in one transaction.
const reportBatchSize = 200

// Packages iterates over the packages, in the order in which they came. An error is the last pair.
func (r *Report) Packages() iter.Seq2[Package, error] {
	if r.mark != nil {
		return r.packagesSinceMark()
	}
	return func(yield func(Package, error) bool) {
		for after := uint64(0); ; {
			list, next, err := r.host.inventory.Packages(after, r.query.Since, reportBatchSize)
			if err != nil {
				r.host.recordFailure(err, "A report could not be made.")
				yield(Package{}, err)
				return
			}
			for i := range list {
				ok, err := r.matchesQuery(&list[i])
				if err != nil {
					yield(Package{}, err)
					return
				}
				if ok && !yield(toPackage(list[i]), nil) {
					return
				}
			}
			if next == 0 {
				return
			}
			after = next
		}
	}
}

// matchesQuery reports whether a package has a finding with the requested score.
func (r *Report) matchesQuery(p *inventorydb.Package) (bool, error) {
	if r.query.MinScore <= 0 {
		return true, nil
	}
	list, err := r.host.inventory.FindingsOf(p)
	if err != nil {
		r.host.recordFailure(err, "A report could not be made.")
		return false, err
	}
	return slices.ContainsFunc(list, func(f inventorydb.Finding) bool { return r.includesFinding(&f.Finding) }), nil
}

func (r *Report) includesFinding(f *match.Finding) bool {
	return f.Vulnerability.Score.Base >= r.query.MinScore && r.host.ruleFilter.Load().Keep(f)
}

// Findings iterates over the findings, by package in the order in which those came, and by ID. The
// current rules apply.
func (r *Report) Findings() iter.Seq2[Finding, error] {
	if r.mark != nil {
		return r.findingsSinceMark()
	}
	return func(yield func(Finding, error) bool) {
		var at inventorydb.FindingCursor
		for more := true; more; {
			var list []inventorydb.Finding
			var err error
			list, at, more, err = r.host.inventory.Findings(at, r.query.Since, reportBatchSize)
			if err != nil {
				r.host.recordFailure(err, "A report could not be made.")
				yield(Finding{}, err)
				return
			}
			for i := range list {
				if r.includesFinding(&list[i].Finding) && !yield(Finding(list[i]), nil) {
					return
				}
			}
		}
	}
}

// sinceMark iterates over all packages that came since the mark, in the directory of the job.
func (r *Report) sinceMark() iter.Seq2[inventorydb.Package, error] {
	return func(yield func(inventorydb.Package, error) bool) {
		for ids := range slices.Chunk(r.ids, reportBatchSize) {
			list, err := r.host.inventory.PackagesSince(r.mark.Position, ids)
			if err != nil {
				r.host.recordFailure(err, "A report could not be made.")
				yield(inventorydb.Package{}, err)
				return
			}
			for _, p := range list {
				p.Locations = slices.DeleteFunc(p.Locations, func(at string) bool {
					return r.mark.Path != "" && !isWithin(r.mark.Path, at)
				})
				if len(p.Locations) > 0 && !yield(p, nil) {
					return
				}
			}
		}
	}
}

func (r *Report) packagesSinceMark() iter.Seq2[Package, error] {
	return func(yield func(Package, error) bool) {
		for p, err := range r.sinceMark() {
			ok := true
			if err == nil {
				ok, err = r.matchesQuery(&p)
			}
			if err != nil {
				yield(Package{}, err)
				return
			}
			if ok && !yield(toPackage(p), nil) {
				return
			}
		}
	}
}

func (r *Report) findingsSinceMark() iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		for p, err := range r.sinceMark() {
			var list []inventorydb.Finding
			if err == nil {
				list, err = r.host.inventory.FindingsOf(&p)
			}
			if err != nil {
				yield(Finding{}, err)
				return
			}
			for i := range list {
				if r.includesFinding(&list[i].Finding) && !yield(Finding(list[i]), nil) {
					return
				}
			}
		}
	}
}

// Event is what one step of the scanner changed. Findings that the rules leave out are not
// in it.
type Event struct {
	Time     time.Time
	Trigger  Trigger
	New      []Package   // cataloged for the first time; of a large step the first thousand
	Findings []Finding   // that are new; of a large step the first thousand
	Removed  []Package   // no longer in any file, with name and version alone; of a large step the first thousand
	Counts   EventCounts // of all of them
}

// EventCounts are the numbers of an event.
type EventCounts struct{ New, Findings, Removed int }

// Trigger is why something changed.
type Trigger string

// The causes.
const (
	ByFullScan Trigger = "full scan" // or what was missed while no scanner ran
	ByRealTime Trigger = "real-time"
	ByDatabase Trigger = "database" // a newer one has more advisories for existing packages
	ByReset    Trigger = "reset"    // only its end is reported
)
