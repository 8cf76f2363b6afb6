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
	request  scanRequest
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when it has ended and its state is left
	counters progressCounters
	matching atomic.Bool
}

// errStopped is the cause of a full scan that a caller stopped.
var errStopped = errors.New("the full scan was stopped")

// resolveDir returns the directory of a scan request as the walk sees it: links resolved.
func (h *Host) resolveDir(path string) (string, error) {
	if path == "" {
		return "/", nil
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%w: %s is not an absolute path", ErrInvalidPath, path)
	}
	if h.checkHungMounts(h.runCtx); h.hungMounts.contains(filepath.Clean(path)) {
		return "", fmt.Errorf("%w: the file system of %s does not respond", ErrInvalidPath, path)
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalidPath, err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalidPath, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%w: %s is not a directory", ErrInvalidPath, path)
	}
	return resolved, nil
}

// beginFullLocked starts the goroutine of a full scan.
func (h *Host) beginFullLocked(o scanRequest) {
	ctx, cancel := context.WithCancelCause(h.runCtx)
	f := &fullScan{request: o, cancel: cancel, done: make(chan struct{})}
	h.fullScan = f
	h.goroutines.Go(func() {
		defer h.opts.GC.hold()() // for the whole scan; at rest again before waiting callers learn of the end
		defer close(f.done)
		defer cancel(nil)
		h.finishFull(ctx, f, h.runFull(ctx, f))
		h.notifyEnd(ByFullScan)
	})
}

// runFull scans, matches, and returns the result.
func (h *Host) runFull(ctx context.Context, f *fullScan) ScanResult {
	out := ScanResult{Path: f.request.Path, Started: f.request.Started}
	begun := time.Now()
	s := &changeCollector{cause: ByFullScan}
	err := h.scan(ctx, f, s, &out)
	if err == nil {
		f.matching.Store(true)
		err = h.matchAll(ctx, s)
	}
	out.Took = time.Since(begun).Round(time.Millisecond)
	switch {
	case errors.Is(context.Cause(ctx), errStopped):
		out.Canceled = true
	case err != nil:
		out.Error = err.Error()
		h.recordFailure(err, "A full scan failed.")
	}
	h.notifyChange(s)
	return out
}

// scan walks the files of a full scan.
func (h *Host) scan(ctx context.Context, f *fullScan, s *changeCollector, out *ScanResult) error {
	h.checkHungMounts(ctx)
	root, err := h.resolveDir(f.request.Path)
	if err != nil {
		return err
	}
	finder, closer, err := h.newFinder(root, &f.counters)
	if err != nil {
		return err
	}
	defer closer.Close()
	p := &treeScan{
		host: h, finder: finder, dir: toTreePath(root), mode: readAll, workers: scanWorkers(), changes: s,
		counters: &f.counters,
	}
	found, err := p.run(ctx)
	if found.listing != nil {
		out.addPass(found, h.hungMounts.isMissed)
	}
	return err
}

// addPass copies the numbers of a pass. A file system that is left out because it hangs counts as
// unread.
func (s *ScanResult) addPass(p treeScanResult, silent func(path string) bool) {
	s.Files, s.Read, s.Packages, s.Skipped = p.listing.Files, p.filesRead, len(p.packageHashes), len(p.listing.Skipped)
	for _, list := range [][]catalog.Warning{p.listing.Warnings, p.warnings} {
		for _, w := range list {
			switch {
			case w.InvalidContent || w.Vanished(): // a host changes while it is scanned
			case !isUnread(w): // it is on the file system of another user
				s.Skipped++
				s.FirstSkipped = appendFirst(s.FirstSkipped, w)
			case w.Denied():
				s.Denied++
				s.FirstUnread = appendFirst(s.FirstUnread, w)
			default:
				s.Unread++
				s.FirstUnread = appendFirst(s.FirstUnread, w)
			}
		}
	}
	for _, w := range p.listing.Skipped {
		if silent(w.Path) {
			s.Unread++
			s.Skipped--
			s.FirstUnread = appendFirst(s.FirstUnread,
				catalog.Warning{Path: w.Path, Message: "the file system does not respond"})
			continue
		}
		s.FirstSkipped = appendFirst(s.FirstSkipped, w)
	}
	s.Unread += p.listing.Omitted
}

// maxNamedPaths is how many unread paths are named.
const maxNamedPaths = 20

func appendFirst(list []string, w catalog.Warning) []string {
	if len(list) < maxNamedPaths {
		list = append(list, w.Path+": "+w.Message)
	}
	return list
}

// finishFull leaves the state of a full scan.
func (h *Host) finishFull(ctx context.Context, f *fullScan, out ScanResult) {
	h.counters.fullScans.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fullScan != f { // it was stopped, and the stop decides what follows
		h.saved.LastResult = &out
		h.saveStateLocked()
		return
	}
	h.fullScan = nil
	if h.runCtx.Err() != nil || errors.Is(context.Cause(ctx), errRebuild) {
		return // the next process repeats it
	}
	how := nothingFollows
	if h.realTime != nil {
		how = realTimeFollows
	}
	h.state, _ = nextState(RunningFull, triggerFullScanEnd, how)
	h.saved.FullScan, h.saved.LastResult = nil, &out
	if out.Error == "" && h.realTime != nil && isWithin(cmp.Or(f.request.Path, "/"), h.realTime.root) {
		h.saved.BaselineKnown, h.missedChanges = true, false
	}
	h.saveStateLocked()
	if h.realTime != nil {
		h.realTime.catchUpLocked()
	}
}
