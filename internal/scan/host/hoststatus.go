package host

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
)

// Status returns the activity and the contents of the scanner.
func (h *Host) Status() Status {
	db := h.databaseStatus()
	totals := h.inventory.Totals()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Status{
		State: h.state, Path: h.saved.Path, LastStart: h.saved.LastStart, LastReset: h.saved.ResetAt,
		LastScan: h.saved.LastResult,
		Database: db, Matching: h.matching.Load(), Warnings: slices.Clone(h.warnings), Work: h.counters.snapshot(),
		Counts: InventoryCounts{
			Files: totals.Files, Packages: totals.Packages, Findings: totals.Findings,
			OwnerDecided: totals.OwnerDecided,
			Bytes:        totals.Bytes,
		},
	}
	s.Database.NextCheck, s.Database.MatchedBuilt = h.nextUpdate, totals.Matched.Built
	for _, err := range []error{h.databaseErr, h.updateErr} {
		if err != nil {
			s.Database.Error = err.Error()
		}
	}
	if totals.Refused > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf(
			"the inventory is full (at most %d packages and %d bytes): packages of %d files are not in it",
			h.opts.MaxPackages, h.opts.MaxBytes, totals.Refused))
	}
	for _, n := range h.saved.Missing {
		s.NoAdvisories = append(s.NoAdvisories, missingText(n))
	}
	s.Warnings = append(s.Warnings, s.NoAdvisories...)
	if !db.Present {
		s.Warnings = append(s.Warnings, "no vulnerability database: packages are cataloged, not matched")
	}
	if h.realTime != nil {
		s.Mounts, s.Pending = h.realTime.watcher.Mounts(), h.realTime.queue.len()
	}
	if f := h.fullScan; f != nil {
		s.Progress = f.progress()
	}
	return s
}

func (h *Host) databaseStatus() DatabaseStatus {
	out := DatabaseStatus{Path: h.opts.Database.Path}
	if out.Path == "" {
		return out
	}
	st, err := update.CurrentStatus(out.Path)
	if err != nil {
		out.Error = err.Error()
	}
	out.Present, out.Info, out.CheckedAt = st.Present, st.Info, st.CheckedAt
	if st.Present {
		out.Age = time.Since(st.Info.Built).Round(time.Second)
	}
	return out
}

// progress returns the progress of a full scan.
func (f *fullScan) progress() *Progress {
	p := &Progress{
		Path: f.request.Path, Started: f.request.Started, Phase: "looking", Files: int(f.counters.filesSeen.Load()),
		Wanted: int(f.counters.wantedFiles.Load()), Read: int(f.counters.filesRead.Load()),
		Packages: int(f.counters.packages.Load()),
	}
	switch {
	case f.matching.Load():
		p.Phase = "judging"
	case p.Wanted > 0:
		p.Phase = "reading"
	}
	return p
}

func (w *workCounters) snapshot() WorkStats {
	return WorkStats{
		FullScans: w.fullScans.Load(), Changes: w.changes.Load(), Rescans: w.rescans.Load(),
		FilesRead: w.filesRead.Load(),
		Packages:  w.packages.Load(), Findings: w.findings.Load(), Matched: w.matched.Load(), Updates: w.updates.Load(),
		Failures: w.failures.Load(),
	}
}

// maxHostWarnings is how many warnings are kept; the oldest are dropped first.
const maxHostWarnings = 20

func (h *Host) warn(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.warnLocked(text)
}

func (h *Host) warnLocked(text string) {
	h.log.Warn("Host scanner warning.", "text", text)
	if slices.Contains(h.warnings, text) {
		return
	}
	h.warnings = append(h.warnings, text)
	h.warnings = h.warnings[max(len(h.warnings)-maxHostWarnings, 0):]
}

// recordFailure records an error. A damaged inventory is rebuilt.
func (h *Host) recordFailure(err error, what string) {
	h.log.Error("Host scanner error.", "what", what, "error", err)
	if errors.Is(err, ErrDamaged) {
		select {
		case h.damageReports <- err:
		default: // already recorded
		}
	}
}
