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
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// realTimeScan is real-time scanning of a directory.
type realTimeScan struct {
	host    *Host
	root    string // absolute; "/" is the whole host
	watcher Watcher
	finder  *catalog.Finder
	closer  io.Closer
	pending *changeQueue
	meter   meter
	pace    throttle

	listen       context.CancelFunc // stops the watcher
	watcherEnded chan struct{}      // closed when the watcher has ended
	ctx          context.Context    // of the work
	cancel       context.CancelFunc
	tasks        sync.WaitGroup
	noted        chan struct{} // closed when the files that existed before are known
	once         sync.Once     // closes it

	// caught is closed when the files that existed before or were missed are known; nil while no
	// search for them runs. The lock of the host guards it.
	caught chan struct{}
}

// flushMost limits the time a watcher takes to report changes made before a stop: one may hang with
// a file system.
const flushMost = 10 * time.Second

// newRealTimeScan begins to watch a directory. No later change is missed.
func (h *Host) newLive(root string) (*realTimeScan, error) {
	l := &realTimeScan{host: h, root: root, pending: newChangeQueue(root,
		h.o.settle), watcherEnded: make(chan struct{}), noted: make(chan struct{})}
	var err error
	if l.finder, l.closer, err = h.newFinder(root, &l.meter); err != nil {
		return nil, err
	}
	l.watcher, err = h.o.Watch(WatchOptions{
		Root: root, Wants: h.names.Want, Leave: h.leaves, State: h.o.Catalogue + ".watch", Log: h.log,
	})
	if err != nil {
		l.closer.Close()
		return nil, fmt.Errorf("real-time scanning of %s: %w", root, err)
	}
	l.ctx, l.cancel = context.WithCancel(h.life)
	listen, stop := context.WithCancel(h.life)
	l.listen = stop
	h.goes.Go(func() {
		defer close(l.watcherEnded)
		err := l.watcher.Run(listen, l.take)
		if err != nil && listen.Err() == nil {
			h.warn("real-time scanning of " + root + " hears nothing any more: " + err.Error())
		}
	})
	l.tasks.Go(l.work)
	return l, nil
}

// take queues the changes that the watcher reports.
func (l *realTimeScan) take(list []Change) {
	l.host.work.changes.Add(uint64(len(list)))
	var keep []Change
	for _, c := range list {
		if other, ok := siblingChange(c); ok {
			keep = append(keep, other)
		}
		if c.What == FileChanged && !l.host.silent.has(c.Path) {
			if _, wanted := l.finder.At(inTree(c.Path)); !wanted {
				continue // when it matters some day, its permissions will have changed
			}
		}
		keep = append(keep, c)
	}
	l.pending.add(keep, time.Now())
}

// work reads changes that have settled, one batch after the other.
func (l *realTimeScan) work() {
	yield()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		list, next := l.pending.due(time.Now())
		if len(list) > 0 {
			err := l.absorb(l.host.life, list)                         // a taken batch is finished, also after a stop
			failed := err != nil && !errors.Is(err, vulndb.ErrDamaged) // which only another database repairs, if any
			if failed {
				l.pending.putBack(list)
			}
			if !l.breathe(timer, failed) {
				return
			}
			continue
		}
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), 50*time.Millisecond))
		}
		select {
		case <-l.ctx.Done():
			return
		case <-timer.C:
		case <-l.pending.wake:
		}
	}
}

// breathe rests after expensive or failed work, and reports whether there is more to do.
func (l *realTimeScan) breathe(timer *time.Timer, failed bool) bool {
	h := l.host
	h.mu.Lock()
	scans := 2 * h.work.fullScans.Load()
	if h.full != nil {
		scans++
	}
	h.mu.Unlock()
	rest := l.pace.rest(time.Now(), processorTime(), scans)
	if rest > 0 {
		h.log.Debug("Much happens: what changes is looked at more slowly.", "rest", rest)
	}
	if failed {
		rest = max(rest, h.o.settle.retry)
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

// absorb updates the inventory to match changes: additions before removals, so that a package that
// moved keeps its date. A failed call can be repeated with the same list.
func (l *realTimeScan) absorb(ctx context.Context, list []change) error {
	s := &step{cause: ByRealTime}
	l.host.lookAround(ctx)
	files, folders, gone := l.sort(list)
	if !l.known() { // until then, files that always existed look like new ones
		l.later(folders)
		folders = nil
	}
	err := l.readFiles(ctx, s, files)
	for _, folder := range folders {
		if err == nil {
			err = l.rescan(ctx, s, folder)
		}
	}
	if err == nil {
		err = l.drop(s, gone)
	}
	if err == nil {
		err = l.host.match(ctx, s)
	}
	l.host.tell(s)
	if err != nil && ctx.Err() == nil {
		l.host.failed(err, "Changes could not be cataloged.")
		l.host.warn(fmt.Sprintf("changes since %s could not be cataloged at once: %v", moment(oldest(list)), err))
	}
	return err
}

// oldest returns the time of the first of some changes.
func oldest(list []change) time.Time {
	return slices.MinFunc(list, func(a, b change) int { return a.first.Compare(b.first) }).first
}

// sort decides by the current files what to do: read files, walk directories, drop what is gone.
// Paths below a directory of the list are handled with it.
func (l *realTimeScan) sort(list []change) (files []string, folders []string, gone []string) {
	slices.SortFunc(list, func(a, b change) int { return cmp.Compare(a.path, b.path) })
	done := map[string]bool{}
	for _, c := range list {
		at := inTree(c.path)
		switch {
		case at != "." && !within(l.root, c.path) || coveredBy(done, at) || l.host.silent.has(c.path):
		case c.what != FileChanged && l.finder.IsDir(at):
			folders, done[at] = append(folders, at), true
		case l.wants(at):
			files = append(files, at)
		default:
			gone = append(gone, at)
		}
	}
	return files, folders, gone
}

// coveredBy reports whether a path or one of its ancestors is in a set of directories.
func coveredBy(folders map[string]bool, at string) bool {
	for ; !folders[at]; at = path.Dir(at) {
		if at == "." {
			return false
		}
	}
	return true
}

func (l *realTimeScan) wants(at string) bool {
	_, ok := l.finder.At(at)
	return ok
}

// pass creates one for a directory.
func (l *realTimeScan) pass(s *step, from string, before time.Time) *treeScan {
	return &treeScan{
		host: l.host, finder: l.finder, from: from, reads: whatDiffers, before: before, workers: 1,
		step: s, meter: &l.meter,
	}
}

// readFiles reads single files.
func (l *realTimeScan) readFiles(ctx context.Context, s *step, paths []string) error {
	defer l.host.o.Calm.working()()
	p := l.pass(s, ".", time.Time{})
	p.reads = whatIsNamed
	for some := range slices.Chunk(paths, pieceFiles) {
		c := &fileRange{}
		for _, at := range some {
			if w, ok := l.finder.At(at); ok {
				c.wanted = append(c.wanted, w)
			}
		}
		if p.read(ctx, c); c.err != nil {
			return c.err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(c.files) == 0 {
			continue
		}
		if err := p.keep(ctx, inventorydb.Batch{Files: c.files}); err != nil {
			return err
		}
	}
	return nil
}

// rescan walks a directory for differences.
func (l *realTimeScan) rescan(ctx context.Context, s *step, from string) error {
	l.host.work.rescans.Add(1)
	_, err := l.pass(s, from, time.Time{}).run(ctx)
	if err != nil && ctx.Err() == nil && !l.finder.IsDir(from) {
		return l.drop(s, []string{from})
	}
	return err
}

// drop removes paths that are gone.
func (l *realTimeScan) drop(s *step, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	known, err := l.host.book.BelowDir(paths)
	if err != nil || len(known) == 0 {
		return err
	}
	changes, err := l.host.book.Put(inventorydb.Batch{Drop: known})
	s.add(changes)
	return err
}

// end stops watching, and catalogs the changes until now.
func (l *realTimeScan) end() {
	l.drainEvents()
	l.awaitCaught()
	l.halt()
	if l.host.life.Err() == nil {
		l.know()
		if list := l.pending.all(); len(list) > 0 && l.absorb(l.host.life, list) != nil {
			l.host.warn("what changed last before real-time scanning of " + l.root +
				" ended is not in the report: a full scan finds it")
		}
	}
	l.closer.Close()
}

// drainEvents waits until the watcher has reported earlier changes, then stops it.
func (l *realTimeScan) drainEvents() {
	select {
	case <-l.watcherEnded: // that was logged already
		return
	default:
	}
	ctx, cancel := context.WithTimeout(l.host.life, flushMost)
	defer cancel()
	if err := l.watcher.Flush(ctx); err != nil && l.host.life.Err() == nil {
		l.host.warn("real-time scanning of " + l.root + " may not have noticed what was written last: " + err.Error())
	}
	l.listen()
	<-l.watcherEnded
}

// halt stops watching and working.
func (l *realTimeScan) halt() {
	l.listen()
	<-l.watcherEnded
	l.cancel()
	l.tasks.Wait()
	if err := l.watcher.Close(); err != nil {
		l.host.log.Warn("The watcher did not close well.", "error", err)
	}
}
