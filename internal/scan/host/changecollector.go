package host

import (
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// maxEventItems limits each list of an event.
const maxEventItems = 1000

// changeCollector collects the changes of one unit of work, for OnChange and OnEnd.
type changeCollector struct {
	cause           Trigger
	newIDs          []uint64 // of new packages, the first of them
	removed         []inventorydb.RemovedPackage
	findings        []Finding
	counts          EventCounts
	productsChanged bool // packages that may affect the match of others came or went
}

// addBatch adds the changes of a batch.
func (s *changeCollector) addBatch(c inventorydb.Changes) {
	s.counts.New += len(c.NewIDs)
	s.counts.Removed += len(c.Removed)
	s.newIDs = append(s.newIDs, c.NewIDs[:min(len(c.NewIDs), maxEventItems-len(s.newIDs))]...)
	s.removed = append(s.removed, c.Removed[:min(len(c.Removed), maxEventItems-len(s.removed))]...)
	for _, g := range c.Removed {
		s.productsChanged = s.productsChanged || match.IsMatchedByProduct(g.Kind)
	}
}

// addFindings adds the findings of a match.
func (s *changeCollector) addFindings(list []inventorydb.Finding, keep func(*match.Finding) bool) {
	for i := range list {
		f := &list[i]
		if !keep(&f.Finding) {
			continue
		}
		s.counts.Findings++
		if len(s.findings) < maxEventItems {
			s.findings = append(s.findings, Finding(*f))
		}
	}
}

// notifyChange calls OnChange when there are changes.
func (h *Host) notifyChange(s *changeCollector) {
	h.counters.packages.Add(uint64(s.counts.New))
	if s.cause == ByDatabase {
		defer h.notifyEnd(ByDatabase)
	}
	if h.opts.OnChange == nil || s.counts == (EventCounts{}) {
		return
	}
	e := Event{Time: h.monotonicNow(), Trigger: s.cause, Findings: s.findings, Counts: s.counts}
	list, err := h.inventory.PackagesByID(s.newIDs)
	if err != nil {
		h.recordFailure(err, "New packages could not be read for the event.")
		return
	}
	for _, p := range list {
		e.New = append(e.New, toPackage(p))
	}
	for _, g := range s.removed {
		e.Removed = append(e.Removed,
			Package{ID: g.ID, Package: catalog.Package{Kind: g.Kind, Name: g.Name, Version: g.Version}})
	}
	h.opts.OnChange(e)
}

// notifyEnd reports the end of work that covers everything.
func (h *Host) notifyEnd(what Trigger) {
	if h.opts.OnEnd != nil && h.runCtx.Err() == nil {
		h.opts.OnEnd(what)
	}
}

func toPackage(p inventorydb.Package) Package {
	return Package{ID: p.ID, Created: p.Created, Package: p.Package}
}

// wallClock returns the current time without the monotonic reading.
func wallClock() time.Time { return time.Now().UTC().Round(0) }

// monotonicNow returns a time not before the last start of a scan, also where the clock was set back since:
// these times decide which packages came since that start.
func (h *Host) monotonicNow() time.Time {
	now := wallClock()
	if since := h.lastStart.Load(); since != nil && since.After(now) {
		return *since
	}
	return now
}

// newStartTime returns the time at which a scan starts.
func (h *Host) newStartTime() time.Time {
	now := wallClock()
	h.lastStart.Store(&now)
	return now
}
