package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/host/unread"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// Mark is a point in the history of the inventory, with the name of the CI job that begins there.
type Mark struct {
	Job      string               `json:"job"`
	Created  time.Time            `json:"created"`
	Path     string               `json:"path,omitempty"` // directory of the job; "" is the whole host
	Position inventorydb.Position `json:"position"`

	// Interrupted reports whether real-time scanning began later, or again. A comparison of times would depend on the
	// clock.
	Interrupted bool `json:"interrupted,omitempty"`

	Stopped time.Time `json:"stopped,omitzero"` // last stop of real-time scanning during the job

	Unread uint64 `json:"unread,omitempty"` // number of the last file that could not be read before the job began
}

// Errors of marks; match them with errors.Is.
var (
	ErrInvalidMark  = errors.New("invalid job")
	ErrMarkExists   = errors.New("the job was marked before")
	ErrMarkNotFound = errors.New("the job has no mark")
	ErrTooManyMarks = errors.New("too many jobs were marked")
)

// Bounds of marks. A caller without a token can add marks, and neither move nor remove one: a flood of them makes later
// ones fail, and removes none of a job that may still run.
const (
	maxMarks       = 1000
	maxMarkAge     = 7 * 24 * time.Hour
	minMarkAge     = time.Hour // of one that is removed for a newer one
	maxJobBytes    = 255
	maxMarkedBytes = 1 << 20 // of the names and paths of all marks: they are in the state file
)

// settleTimeout limits how long a mark or a report waits for changes to be read.
const settleTimeout = 30 * time.Second

// Mark records that a job begins. Changes of before are read first, so that their packages do not count as the job's.
// It fails with ErrInvalidMark, ErrInvalidPath, ErrMarkExists and ErrTooManyMarks.
func (h *Host) Mark(ctx context.Context, job, path string) (Mark, error) {
	if err := checkJob(job); err != nil {
		return Mark{}, err
	}
	m := Mark{Job: job}
	if path != "" {
		dir, err := h.resolveDir(path)
		if err != nil {
			return Mark{}, err
		}
		if dir != "/" {
			m.Path = dir
		}
	}
	if err := h.Settle(ctx); err != nil {
		h.log.WarnContext(ctx, "Changes of before a mark may count as the job's.", "job", job, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runCtx.Err() != nil {
		return Mark{}, ErrClosed
	}
	m.Created, m.Position, m.Unread = h.monotonicNow(), h.inventory.Position(), h.saved.Unread.Last
	if err := h.addMarkLocked(m); err != nil {
		return Mark{}, err
	}
	h.saveStateLocked()
	return m, nil
}

func checkJob(job string) error {
	if job == "" || len(job) > maxJobBytes || !utf8.ValidString(job) ||
		strings.ContainsFunc(job, unicode.IsControl) {
		return fmt.Errorf("%w: want a name of 1 to %d bytes without control characters", ErrInvalidMark, maxJobBytes)
	}
	return nil
}

// addMarkLocked adds a mark, and removes those that are too old or too many.
func (h *Host) addMarkLocked(m Mark) error {
	h.removeOldMarksLocked(m.Created)
	if at := h.findMarkLocked(m.Job); at >= 0 {
		return fmt.Errorf("%w, at %s: use a name that is new for each run", ErrMarkExists,
			formatTime(h.saved.Marks[at].Created))
	}
	size := len(m.Job) + len(m.Path)
	for _, other := range h.saved.Marks {
		size += len(other.Job) + len(other.Path)
	}
	for len(h.saved.Marks) >= maxMarks || size > maxMarkedBytes {
		oldest := h.saved.Marks[0]
		if m.Created.Sub(oldest.Created) < minMarkAge {
			return fmt.Errorf("%w within an hour (%d): try again later", ErrTooManyMarks, len(h.saved.Marks))
		}
		size -= len(oldest.Job) + len(oldest.Path)
		h.saved.Marks = slices.Delete(h.saved.Marks, 0, 1)
	}
	h.saved.Marks = append(h.saved.Marks, m)
	return nil
}

func (h *Host) removeOldMarksLocked(now time.Time) {
	h.saved.Marks = slices.DeleteFunc(h.saved.Marks, func(m Mark) bool { return now.Sub(m.Created) > maxMarkAge })
}

// noteStopLocked records that real-time scanning ends: what the jobs write from now on is in no earlier full scan.
func (h *Host) noteStopLocked() {
	now := h.monotonicNow()
	for i := range h.saved.Marks {
		h.saved.Marks[i].Stopped = now
	}
}

// removeForeignMarksLocked removes the marks when the inventory is not the one that they were made in: its file was
// removed, or replaced by an older one, and what a job brought has smaller numbers there.
func (h *Host) removeForeignMarksLocked() {
	end := h.inventory.Position()
	if slices.ContainsFunc(h.saved.Marks, func(m Mark) bool {
		return m.Position.Package > end.Package || m.Position.File > end.File
	}) {
		h.saved.Marks = nil
	}
}

func (h *Host) findMarkLocked(job string) int {
	return slices.IndexFunc(h.saved.Marks, func(m Mark) bool { return m.Job == job })
}

// Marks returns the marks, the oldest first.
func (h *Host) Marks() []Mark {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeOldMarksLocked(h.monotonicNow())
	return slices.Clone(h.saved.Marks)
}

// Gap returns why packages that came since a mark may be missing in the report of its job; "" when nothing is known to
// be missing.
func (h *Host) Gap(m Mark) string {
	if h.inventory.Totals().Refused > 0 {
		return "the inventory is full: packages are missing"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	dir := cmp.Or(m.Path, "/")
	if gap := h.saved.Unread.Since(m.Unread, func(path string) bool { return isWithin(dir, path) }); gap != "" {
		return gap
	}
	if l := h.saved.LastResult; l != nil && !l.Canceled && l.Error == "" && l.Started.After(m.Created) &&
		l.Started.After(m.Stopped) && isWithin(cmp.Or(l.Path, "/"), dir) {
		return ""
	}
	switch live := h.realTime; {
	case live == nil || m.Interrupted:
		return "real-time scanning did not run all the time since the job began, and no full scan has followed"
	case !isWithin(live.root, dir):
		return "real-time scanning is restricted to " + live.root
	case live.hasEnded():
		return "real-time scanning receives no changes"
	default:
		return h.unwatched(live, dir)
	}
}

// unwatched returns why real-time scanning leaves out a directory; "" when it does not.
func (h *Host) unwatched(live *realTimeScan, dir string) string {
	for p := dir; p != "/"; p = filepath.Dir(p) {
		if h.isExcluded(p) {
			return p + " is neither scanned nor watched"
		}
	}
	var at Mount
	for _, m := range live.watcher.Mounts() {
		if isWithin(m.Path, dir) && len(m.Path) >= len(at.Path) {
			at = m
		}
	}
	if at.Path != "" && at.Method == "" {
		return at.Path + " is not watched: " + at.Reason
	}
	return ""
}

// Unevaluated returns why vulnerabilities may be missing in the report of a job: the packages in it were not compared
// with advisories.
func (h *Host) Unevaluated(m Mark) (out []string, err error) {
	if db := h.databaseStatus(); !db.Present {
		out = append(out, "no vulnerability database: packages are not matched")
	}
	h.mu.Lock()
	if h.databaseErr != nil {
		out = append(out, "the vulnerability database cannot be used: "+h.databaseErr.Error())
	}
	missing := slices.Clone(h.saved.Missing)
	h.mu.Unlock()
	if len(missing) == 0 {
		return out, nil
	}
	r, err := h.ReportSinceMark(m.Job, 0)
	if err != nil {
		return nil, err
	}
	for p, err := range r.Packages() {
		if err != nil {
			return nil, err
		}
		missing = slices.DeleteFunc(missing, func(n match.NoAdvisories) bool {
			if n.Kind != p.Kind || p.Kind.IsOS() && n.Distribution != p.Distribution {
				return false
			}
			out = append(out, missingText(n))
			return true
		})
		if len(missing) == 0 {
			break
		}
	}
	return out, nil
}

// ReportSinceMark begins a report of what came since a job was marked: packages in files that are new, or that are new
// on this host, and the vulnerabilities of these. What Settle has not awaited may be missing. It fails with
// ErrMarkNotFound.
func (h *Host) ReportSinceMark(job string, minScore float64) (*Report, error) {
	h.mu.Lock()
	h.removeOldMarksLocked(h.monotonicNow())
	at := h.findMarkLocked(job)
	var m Mark
	if at >= 0 {
		m = h.saved.Marks[at]
	}
	h.mu.Unlock()
	if at < 0 {
		return nil, fmt.Errorf("%w: marks last %d days, and end when the inventory is rebuilt or removed",
			ErrMarkNotFound, maxMarkAge/(24*time.Hour))
	}
	ids, err := h.inventory.IDsSince(m.Position)
	if err != nil {
		h.recordFailure(err, "A report could not be made.")
		return nil, err
	}
	return &Report{host: h, query: Query{MinScore: minScore}, mark: &m, ids: ids}, nil
}

// awaitResumed waits until the state of the last process is resumed.
func (h *Host) awaitResumed(ctx context.Context) error {
	select {
	case <-h.resumed:
		return nil
	case <-h.runCtx.Done():
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ErrUnsettled is the error of a wait for changes that ended without them.
var ErrUnsettled = errors.New("changes could not be read in time; try again")

// Settle waits until what changed before the call is in the inventory and compared with the database, as far as the
// watcher can know it.
func (h *Host) Settle(ctx context.Context) error {
	if err := h.awaitResumed(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, ErrUnsettled)
	defer cancel()
	h.mu.Lock()
	live := h.realTime
	h.mu.Unlock()
	if live != nil {
		if err := live.settle(ctx); err != nil {
			return err
		}
	}
	waiting, err := h.inventory.AwaitingMatch(1)
	if err != nil || len(waiting) == 0 {
		return err
	}
	s := &changeCollector{cause: ByRealTime}
	err = h.matchAll(h.runCtx, s) //nolint:contextcheck // what it begins, it finishes
	h.notifyChange(s)
	return err
}

// settle waits until what changed before the call is in the inventory.
func (l *realTimeScan) settle(ctx context.Context) error {
	if l.hasEnded() {
		return nil // that is a gap
	}
	if err := l.watcher.Flush(ctx); err != nil {
		return err
	}
	if caught := l.neededCatchUp(); caught != nil {
		select {
		case <-caught:
		case <-l.ctx.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-l.queue.await():
		return nil
	case <-l.ctx.Done(): // the stop of the scan reads the rest
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hasEnded reports whether the watcher no longer reports changes.
func (l *realTimeScan) hasEnded() bool {
	select {
	case <-l.watcherEnded:
		return true
	default:
		return false
	}
}

// isUnread reports whether a warning says that packages of this machine may be missing.
func isUnread(w catalog.Warning) bool {
	return !w.InvalidContent && !w.Vanished() && !(w.Denied() && isForeignMount(w.Path))
}

// noteWalk records which directories could not be read, and removes what is gone from the unread files.
func (p *treeScan) noteWalk(warnings []catalog.Warning) {
	failed := map[string]bool{}
	for i := range warnings {
		failed[warnings[i].Path] = true
		p.host.noteRead(warnings[i].Path, 0, warnings[i:i+1])
	}
	p.host.removeUnread(toSystemPath(p.dir), func(f unread.File) bool {
		return !failed[f.Path] && !p.exists(toTreePath(f.Path))
	})
}

// noteRead records whether a file or directory could be read.
func (h *Host) noteRead(path string, stamp uint64, warnings []catalog.Warning) {
	at := slices.IndexFunc(warnings, isUnread) // asks the file system, which may block
	h.mu.Lock()
	defer h.mu.Unlock()
	list := &h.saved.Unread
	if at >= 0 {
		f := unread.File{Path: path, Message: warnings[at].Message, Stamp: stamp}
		h.unreadUnsaved = list.Add(f) || h.unreadUnsaved
	} else if len(list.Files) > 0 {
		h.unreadUnsaved = list.Remove(func(f unread.File) bool { return f.Path == path }) || h.unreadUnsaved
	}
}

// removeUnread removes those files at or below a path that are gone, by a function that may ask the file system.
func (h *Host) removeUnread(path string, gone func(unread.File) bool) {
	h.mu.Lock()
	list := slices.Clone(h.saved.Unread.Files)
	h.mu.Unlock()
	list = slices.DeleteFunc(list, func(f unread.File) bool { return !isWithin(path, f.Path) || !gone(f) })
	if len(list) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.saved.Unread.Remove(func(f unread.File) bool { return slices.Contains(list, f) })
	h.unreadUnsaved = true
}

// saveUnread keeps the unread files for the next start, before their stamps are in the inventory.
func (h *Host) saveUnread() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unreadUnsaved {
		h.unreadUnsaved = false
		h.saveStateLocked()
	}
}
