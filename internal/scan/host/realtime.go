package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/host/inventorydb"
	"github.com/buildyard/buildyard/internal/scan/host/unread"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// realTimeScan is real-time scanning of a directory.
type realTimeScan struct {
	host         *Host
	root         string // absolute; "/" is the whole host
	watcher      Watcher
	finder       *catalog.Finder
	finderCloser io.Closer
	queue        *changeQueue
	counters     progressCounters
	throttle     throttle

	stopWatcher   context.CancelFunc // stops the watcher
	watcherEnded  chan struct{}      // closed when the watcher has ended
	ctx           context.Context    // of the work
	cancel        context.CancelFunc
	tasks         sync.WaitGroup
	baselineKnown chan struct{} // closed when the files that existed before are known
	baselineOnce  sync.Once     // closes it

	// caughtUp is closed when the files that existed before or were missed are known; nil while no
	// search for them runs. The lock of the host guards it.
	caughtUp chan struct{}
}

// flushTimeout limits the time a watcher takes to report changes made before a stop: one may hang with
// a file system.
const flushTimeout = 10 * time.Second

// newRealTimeScan begins to watch a directory. No later change is missed.
func (h *Host) newRealTimeScan(root string) (*realTimeScan, error) {
	l := &realTimeScan{host: h, root: root, queue: newChangeQueue(root,
		h.opts.debounce), watcherEnded: make(chan struct{}), baselineKnown: make(chan struct{})}
	var err error
	if l.finder, l.finderCloser, err = h.newFinder(root, &l.counters); err != nil {
		return nil, err
	}
	l.watcher, err = h.opts.NewWatcher(WatchOptions{
		Root: root, WantsFile: h.nameFilter.Matches, Exclude: h.isExcluded, StatePath: h.opts.InventoryPath + ".watch",
		Log: h.log,
	})
	if err != nil {
		l.finderCloser.Close()
		return nil, fmt.Errorf("start real-time scanning of %s: %w", root, err)
	}
	l.ctx, l.cancel = context.WithCancel(h.runCtx)
	listen, stop := context.WithCancel(h.runCtx)
	l.stopWatcher = stop
	h.goroutines.Go(func() {
		defer close(l.watcherEnded)
		err := l.watcher.Run(listen, l.enqueue)
		if err != nil && listen.Err() == nil {
			h.warn("real-time scanning of " + root + " no longer receives changes: " + err.Error())
		}
	})
	l.tasks.Go(l.run)
	return l, nil
}

// enqueue queues the changes that the watcher reports.
func (l *realTimeScan) enqueue(list []Change) {
	l.host.counters.changes.Add(uint64(len(list)))
	var keep []Change
	for _, c := range list {
		if other, ok := siblingChange(c); ok {
			keep = append(keep, other)
		}
		if c.Kind == FileChanged && !l.host.hungMounts.contains(c.Path) {
			if _, wanted := l.finder.WantedAt(toTreePath(c.Path)); !wanted {
				continue // when it matters some day, its permissions will have changed
			}
		}
		keep = append(keep, c)
	}
	l.queue.add(keep, time.Now())
}

// run reads changes that have settled, one batch after the other.
func (l *realTimeScan) run() {
	lowerPriority()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		waiters, list := l.queue.takeAwaited()
		var next time.Time
		if len(list) == 0 {
			list, next = l.queue.takeDue(time.Now())
		}
		if len(list) > 0 {
			err := l.applyChanges(l.host.runCtx, list)                 // a taken batch is finished, also after a stop
			failed := err != nil && !errors.Is(err, vulndb.ErrDamaged) // which only another database repairs, if any
			if failed {
				l.queue.putBack(list)
				l.queue.putBackAwaited(waiters)
				waiters = nil
			}
			closeAll(waiters)
			if !l.pause(timer, failed) {
				return
			}
			continue
		}
		closeAll(waiters)
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), 50*time.Millisecond))
		}
		select {
		case <-l.ctx.Done():
			return
		case <-timer.C:
		case <-l.queue.wake:
		}
	}
}

func closeAll(list []chan struct{}) {
	for _, c := range list {
		close(c)
	}
}

// pause rests after expensive or failed work, and reports whether there is more to do.
func (l *realTimeScan) pause(timer *time.Timer, failed bool) bool {
	h := l.host
	h.mu.Lock()
	scans := 2 * h.counters.fullScans.Load()
	if h.fullScan != nil {
		scans++
	}
	h.mu.Unlock()
	rest := l.throttle.restTime(time.Now(), processorTime(), scans)
	if rest > 0 {
		h.log.Debug("Many changes: scans of changed files are delayed.", "rest", rest)
	}
	if failed {
		rest = max(rest, h.opts.debounce.retryDelay)
	}
	if rest > 0 {
		timer.Reset(rest)
		select {
		case <-l.ctx.Done():
		case <-timer.C:
		}
	}
	return l.ctx.Err() == nil
}

// applyChanges updates the inventory to match changes: additions before removals, so that a package that
// moved keeps its date. A failed call can be repeated with the same list.
func (l *realTimeScan) applyChanges(ctx context.Context, list []pendingChange) error {
	s := &changeCollector{cause: ByRealTime}
	l.host.checkHungMounts(ctx)
	files, dirs, gone := l.classify(list)
	if !l.isBaselineKnown() { // until then, files that always existed look like new ones
		l.requeueDirs(dirs)
		dirs = nil
	}
	err := l.readFiles(ctx, s, files)
	for _, dir := range dirs {
		if err == nil {
			err = l.rescan(ctx, s, dir)
		}
	}
	if err == nil {
		err = l.removePaths(s, gone)
	}
	if err == nil {
		err = l.host.match(ctx, s)
	}
	l.host.notifyChange(s)
	if err != nil && ctx.Err() == nil {
		l.host.recordFailure(err, "Changes could not be cataloged.")
		l.host.warn(fmt.Sprintf("changes since %s could not be cataloged immediately: %v",
			formatTime(oldestChange(list)), err))
	}
	return err
}

// oldestChange returns the time of the first of some changes.
func oldestChange(list []pendingChange) time.Time {
	return slices.MinFunc(list, func(a, b pendingChange) int { return a.firstAt.Compare(b.firstAt) }).firstAt
}

// classify decides by the current files what to do: read files, walk directories, drop what is gone.
// Paths below a directory of the list are handled with it.
func (l *realTimeScan) classify(list []pendingChange) (files []string, dirs []string, gone []string) {
	slices.SortFunc(list, func(a, b pendingChange) int { return cmp.Compare(a.path, b.path) })
	done := map[string]bool{}
	for _, c := range list {
		at := toTreePath(c.path)
		switch {
		case at != "." && !isWithin(l.root, c.path) || coveredBy(done, at) || l.host.hungMounts.contains(c.path):
		case c.kind != FileChanged && l.finder.IsDir(at):
			dirs, done[at] = append(dirs, at), true
		case l.isWanted(at):
			files = append(files, at)
		default:
			gone = append(gone, at)
		}
	}
	return files, dirs, gone
}

// coveredBy reports whether a path or one of its ancestors is in a set of directories.
func coveredBy(dirs map[string]bool, at string) bool {
	for ; !dirs[at]; at = path.Dir(at) {
		if at == "." {
			return false
		}
	}
	return true
}

func (l *realTimeScan) isWanted(at string) bool {
	_, ok := l.finder.WantedAt(at)
	return ok
}

// newTreeScan creates one for a directory.
func (l *realTimeScan) newTreeScan(s *changeCollector, from string, before time.Time) *treeScan {
	return &treeScan{
		host: l.host, finder: l.finder, dir: from, mode: readChanged, notedBefore: before, workers: 1,
		changes: s, counters: &l.counters,
	}
}

// readFiles reads single files.
func (l *realTimeScan) readFiles(ctx context.Context, s *changeCollector, paths []string) error {
	defer l.host.opts.GC.hold()()
	p := l.newTreeScan(s, ".", time.Time{})
	p.mode = readChangedAndNoted
	for some := range slices.Chunk(paths, rangeFiles) {
		c := &fileRange{}
		for _, at := range some {
			if w, ok := l.finder.WantedAt(at); ok {
				c.wanted = append(c.wanted, w)
			}
		}
		if p.readRange(ctx, c); c.err != nil {
			return c.err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(c.files) == 0 {
			continue
		}
		if err := p.storeBatch(ctx, inventorydb.Batch{Files: c.files}); err != nil {
			return err
		}
	}
	if p.databaseRead.Load() {
		return p.updateOwners(ctx)
	}
	return nil
}

// rescan walks a directory for differences.
func (l *realTimeScan) rescan(ctx context.Context, s *changeCollector, from string) error {
	l.host.counters.rescans.Add(1)
	_, err := l.newTreeScan(s, from, time.Time{}).run(ctx)
	if err != nil && ctx.Err() == nil && !l.finder.IsDir(from) {
		return l.removePaths(s, []string{from})
	}
	return err
}

// removePaths removes paths that are gone.
func (l *realTimeScan) removePaths(s *changeCollector, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	for _, path := range paths {
		l.host.removeUnread(toSystemPath(path), func(unread.File) bool { return true })
	}
	known, err := l.host.inventory.KnownBelow(paths)
	if err != nil || len(known) == 0 {
		return err
	}
	changes, err := l.host.inventory.Put(inventorydb.Batch{RemovePaths: known})
	s.addBatch(changes)
	return err
}

// finish stops watching, and catalogs the changes until now.
func (l *realTimeScan) finish() {
	l.drainEvents()
	l.awaitCatchUp()
	l.abort()
	if l.host.runCtx.Err() == nil {
		l.setBaselineKnown()
		if list := l.queue.takeAll(); len(list) > 0 && l.applyChanges(l.host.runCtx, list) != nil {
			l.host.warn("what changed last before real-time scanning of " + l.root +
				" ended is not in the report: a full scan finds it")
		}
	}
	l.finderCloser.Close()
}

// drainEvents waits until the watcher has reported earlier changes, then stops it.
func (l *realTimeScan) drainEvents() {
	select {
	case <-l.watcherEnded: // that was logged already
		return
	default:
	}
	ctx, cancel := context.WithTimeout(l.host.runCtx, flushTimeout)
	defer cancel()
	if err := l.watcher.Flush(ctx); err != nil && l.host.runCtx.Err() == nil {
		l.host.warn("real-time scanning of " + l.root + " may not have noticed what was written last: " + err.Error())
	}
	l.stopWatcher()
	<-l.watcherEnded
}

// abort stops watching and working.
func (l *realTimeScan) abort() {
	l.stopWatcher()
	<-l.watcherEnded
	l.cancel()
	l.tasks.Wait()
	if err := l.watcher.Close(); err != nil {
		l.host.log.Warn("Closing the file watcher failed.", "error", err)
	}
}
