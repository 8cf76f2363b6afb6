package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// fullScan is a running full scan.
type fullScan struct {
	order  scanRequest
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has ended and its state is left
	meter  meter
	judges atomic.Bool
}

// errStopped is the cause of a full scan that a caller stopped.
var errStopped = errors.New("the full scan was stopped")

// dirOf returns the directory of a scan request as the walk sees it: links resolved.
func (h *Host) dirOf(path string) (string, error) {
	if path == "" {
		return "/", nil
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%w: %s is not an absolute path", ErrPath, path)
	}
	if h.lookAround(h.life); h.silent.has(filepath.Clean(path)) {
		return "", fmt.Errorf("%w: the file system of %s does not respond", ErrPath, path)
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPath, err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPath, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%w: %s is not a directory", ErrPath, path)
	}
	return resolved, nil
}

// beginFullLocked starts the goroutine of a full scan.
func (h *Host) beginFullLocked(o scanRequest) {
	ctx, cancel := context.WithCancelCause(h.life)
	f := &fullScan{order: o, cancel: cancel, done: make(chan struct{})}
	h.full = f
	h.goes.Go(func() {
		defer h.o.Calm.working()() // for the whole scan; at rest again before waiting callers learn of the end
		defer close(f.done)
		defer cancel(nil)
		h.endFull(ctx, f, h.runFull(ctx, f))
		h.ended(ByFullScan)
	})
}

// runFull scans, matches, and returns the result.
func (h *Host) runFull(ctx context.Context, f *fullScan) ScanResult {
	out := ScanResult{Path: f.order.Path, Started: f.order.Started}
	begun := time.Now()
	s := &step{cause: ByFullScan}
	err := h.scan(ctx, f, s, &out)
	if err == nil {
		f.judges.Store(true)
		err = h.matchAll(ctx, s)
	}
	out.Took = time.Since(begun).Round(time.Millisecond)
	switch {
	case errors.Is(context.Cause(ctx), errStopped):
		out.Canceled = true
	case err != nil:
		out.Error = err.Error()
		h.failed(err, "A full scan failed.")
	}
	h.tell(s)
	return out
}

// scan walks the files of a full scan.
func (h *Host) scan(ctx context.Context, f *fullScan, s *step, out *ScanResult) error {
	h.lookAround(ctx)
	folder, err := h.dirOf(f.order.Path)
	if err != nil {
		return err
	}
	finder, closer, err := h.newFinder(folder, &f.meter)
	if err != nil {
		return err
	}
	defer closer.Close()
	p := &treeScan{
		host: h, finder: finder, from: inTree(folder), reads: everything, workers: workers(), step: s,
		meter: &f.meter,
	}
	found, err := p.run(ctx)
	if found.listing != nil {
		out.note(found, h.silent.missed)
	}
	return err
}

// note copies the numbers of a pass. A file system that is left out because it hangs counts as
// unread.
func (s *ScanResult) note(p passed, silent func(path string) bool) {
	s.Files, s.Read, s.Packages, s.Skipped = p.listing.Files, p.read, len(p.distinct), len(p.listing.Skipped)
	for _, list := range [][]catalog.Warning{p.listing.Warnings, p.warnings} {
		for _, w := range list {
			switch {
			case w.Odd || w.Vanished(): // a host changes while it is scanned
			case w.Denied() && foreign(w.Path):
				s.Skipped++
				s.FirstSkipped = first(s.FirstSkipped, w)
			case w.Denied():
				s.Denied++
				s.FirstUnread = first(s.FirstUnread, w)
			default:
				s.Unread++
				s.FirstUnread = first(s.FirstUnread, w)
			}
		}
	}
	for _, w := range p.listing.Skipped {
		if silent(w.Path) {
			s.Unread++
			s.Skipped--
			s.FirstUnread = first(s.FirstUnread, catalog.Warning{Path: w.Path, What: "the file system does not answer"})
			continue
		}
		s.FirstSkipped = first(s.FirstSkipped, w)
	}
	s.Unread += p.listing.Left
}

// mostNamed is how many unread paths are named.
const mostNamed = 20

func first(list []string, w catalog.Warning) []string {
	if len(list) < mostNamed {
		list = append(list, w.Path+": "+w.What)
	}
	return list
}

// endFull leaves the state of a full scan.
func (h *Host) endFull(ctx context.Context, f *fullScan, out ScanResult) {
	h.work.fullScans.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.full != f { // it was stopped, and the stop decides what follows
		h.memory.Last = &out
		h.rememberLocked()
		return
	}
	h.full = nil
	if h.life.Err() != nil || errors.Is(context.Cause(ctx), errRebuild) {
		return // the next process repeats it
	}
	how := unfollowed
	if h.live != nil {
		how = followed
	}
	h.state, _ = next(RunningFull, fullEnds, how)
	h.memory.Full, h.memory.Last = nil, &out
	if out.Error == "" && h.live != nil && within(cmp.Or(f.order.Path, "/"), h.live.root) {
		h.memory.Noted, h.missed = true, false
	}
	h.rememberLocked()
	if h.live != nil {
		h.live.catchUpLocked()
	}
}
