package host

import (
	"fmt"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
)

// Status returns the activity and the contents of the scanner.
func (h *Host) Status() Status {
	db := h.databaseStatus()
	totals := h.book.Totals()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Status{
		State: h.state, Path: h.memory.Path, Since: h.memory.Since, Reset: h.memory.Reset, LastScan: h.memory.Last,
		Database: db, Judging: h.judges.Load(), Warnings: slices.Clone(h.warnings), Work: h.work.now(),
		Counts: Contents{
			Files: totals.Files, Packages: totals.Packages, Findings: totals.Findings,
			Bytes: totals.Bytes,
		},
	}
	s.Database.Next, s.Database.Matched = h.nextLook, totals.Matched.Built
	for _, err := range []error{h.unread, h.looked} {
		if err != nil {
			s.Database.Error = err.Error()
		}
	}
	if totals.Refused > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf(
			"the inventory is full (at most %d packages and %d bytes): packages of %d files are not in it",
			h.o.MaxPackages, h.o.MaxBytes, totals.Refused))
	}
	if !db.Present {
		s.Warnings = append(s.Warnings, "no vulnerability database: packages are cataloged, not matched")
	}
	if h.live != nil {
		s.Mounts, s.Pending = h.live.watcher.Mounts(), h.live.pending.len()
	}
	if f := h.full; f != nil {
		s.Progress = f.progress()
	}
	return s
}

func (h *Host) databaseStatus() DatabaseStatus {
	out := DatabaseStatus{Path: h.o.Database.Path}
	if out.Path == "" {
		return out
	}
	st, err := update.Look(out.Path)
	if err != nil {
		out.Error = err.Error()
	}
	out.Present, out.Info, out.Checked = st.Present, st.Info, st.Checked
	if st.Present {
		out.Age = time.Since(st.Info.Built).Round(time.Second)
	}
	return out
}

// progress returns the progress of a full scan.
func (f *fullScan) progress() *Progress {
	p := &Progress{
		Path: f.order.Path, Started: f.order.Started, Phase: "looking", Files: int(f.meter.files.Load()),
		Wanted: int(f.meter.wanted.Load()), Read: int(f.meter.read.Load()), Packages: int(f.meter.packages.Load()),
	}
	switch {
	case f.judges.Load():
		p.Phase = "judging"
	case p.Wanted > 0:
		p.Phase = "reading"
	}
	return p
}

func (w *workCounters) now() Work {
	return Work{
		FullScans: w.fullScans.Load(), Changes: w.changes.Load(), Rescans: w.rescans.Load(), FilesRead: w.read.Load(),
		Packages: w.packages.Load(), Findings: w.findings.Load(), Matched: w.matched.Load(), Updates: w.updates.Load(),
		Failures: w.failures.Load(),
	}
}
