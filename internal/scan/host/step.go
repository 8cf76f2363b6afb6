package host

import (
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// mostTold limits each list of an event.
const mostTold = 1000

// step collects the changes of one unit of work, for OnChange and OnEnd.
type step struct {
	cause    Cause
	ids      []uint64 // of new packages, the first of them
	gone     []inventorydb.RemovedPackage
	findings []Finding
	counts   Counts
	products bool // packages that may affect the match of others came or went
}

// add adds the changes of a batch.
func (s *step) add(c inventorydb.Changes) {
	s.counts.New += len(c.New)
	s.counts.Removed += len(c.Removed)
	s.ids = append(s.ids, c.New[:min(len(c.New), mostTold-len(s.ids))]...)
	s.gone = append(s.gone, c.Removed[:min(len(c.Removed), mostTold-len(s.gone))]...)
	for _, g := range c.Removed {
		s.products = s.products || match.ByProduct(g.Kind)
	}
}

// found adds the findings of a match.
func (s *step) found(list []inventorydb.Finding, keep func(*match.Finding) bool) {
	for i := range list {
		f := &list[i]
		if !keep(&f.Finding) {
			continue
		}
		s.counts.Findings++
		if len(s.findings) < mostTold {
			s.findings = append(s.findings, Finding(*f))
		}
	}
}

// tell calls OnChange when there are changes.
func (h *Host) tell(s *step) {
	h.work.packages.Add(uint64(s.counts.New))
	if s.cause == ByDatabase {
		defer h.ended(ByDatabase)
	}
	if h.o.OnChange == nil || s.counts == (Counts{}) {
		return
	}
	e := Event{At: h.now(), Cause: s.cause, Findings: s.findings, Counts: s.counts}
	list, err := h.book.ByID(s.ids)
	if err != nil {
		h.failed(err, "What came cannot be told.")
		return
	}
	for _, p := range list {
		e.New = append(e.New, shown(p))
	}
	for _, g := range s.gone {
		e.Removed = append(e.Removed,
			Package{ID: g.ID, Package: catalog.Package{Kind: g.Kind, Name: g.Name, Version: g.Version}})
	}
	h.o.OnChange(e)
}

// ended reports the end of work that covers everything.
func (h *Host) ended(what Cause) {
	if h.o.OnEnd != nil && h.life.Err() == nil {
		h.o.OnEnd(what)
	}
}

func shown(p inventorydb.Package) Package {
	return Package{ID: p.ID, Created: p.Created, Package: p.Package}
}

// clock returns the current time without the monotonic reading.
func clock() time.Time { return time.Now().UTC().Round(0) }

// now returns a time not before the last start of a scan, also where the clock was set back since:
// these times decide which packages came since that start.
func (h *Host) now() time.Time {
	now := clock()
	if since := h.since.Load(); since != nil && since.After(now) {
		return *since
	}
	return now
}

// begins returns the time at which a scan starts.
func (h *Host) begins() time.Time {
	now := clock()
	h.since.Store(&now)
	return now
}
