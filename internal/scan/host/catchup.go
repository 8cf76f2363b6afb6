package host

import (
	"cmp"
	"time"
)

// catchUpLocked starts the search for files present when real-time scanning began, unless they are
// known. It also finds changes made while no process watched. The caller holds the lock of the
// host.
func (l *realTimeScan) catchUpLocked() {
	if l.host.saved.BaselineKnown && !l.host.missedChanges {
		l.setBaselineKnown()
		return
	}
	if l.host.fullScan != nil && isWithin(cmp.Or(l.host.fullScan.request.Path, "/"), l.root) {
		l.setBaselineKnown() // it finds all of it, and calls again
		return
	}
	if l.caughtUp != nil {
		return
	}
	caught := make(chan struct{})
	l.caughtUp = caught
	before := l.host.saved.WatchedSince
	if l.host.saved.BaselineKnown {
		before = time.Time{}
	}
	if before.IsZero() {
		l.setBaselineKnown() // now: a caller that waits for changes also waits for those that are searched
	}
	l.tasks.Go(func() {
		defer close(caught)
		l.catchUp(before)
	})
}

// setBaselineKnown records that all files present at the start are known.
func (l *realTimeScan) setBaselineKnown() { l.baselineOnce.Do(func() { close(l.baselineKnown) }) }

func (l *realTimeScan) isBaselineKnown() bool {
	select {
	case <-l.baselineKnown:
		return true
	default:
		return false
	}
}

// requeueDirs puts directories back into the queue.
func (l *realTimeScan) requeueDirs(dirs []string) {
	var list []Change
	for _, f := range dirs {
		list = append(list, Change{toSystemPath(f), DirChanged})
	}
	l.queue.add(list, time.Now())
}

func (l *realTimeScan) catchUp(before time.Time) {
	lowerPriority()
	l.host.checkHungMounts(l.ctx)
	defer l.setBaselineKnown() // whatever the result
	err := l.searchMissed(before)
	for err != nil && l.waitRetry() {
		err = l.searchMissed(before)
	}
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	l.caughtUp = nil
	if err == nil && l.ctx.Err() == nil && l.host.realTime == l {
		l.host.saved.BaselineKnown, l.host.missedChanges = true, false
		l.host.saveStateLocked()
	}
}

// searchMissed searches once for files that existed before or were missed.
func (l *realTimeScan) searchMissed(before time.Time) error {
	s := &changeCollector{cause: ByFullScan}
	_, err := l.newTreeScan(s, toTreePath(l.root), before).run(l.ctx)
	if err == nil {
		err = l.host.match(l.ctx, s)
	}
	l.host.notifyChange(s)
	if err != nil && l.ctx.Err() == nil {
		l.host.recordFailure(err, "Changes before the watch began could not be scanned.")
		l.host.warn("changes before real-time scanning of " + l.root +
			" began could not be scanned: " + err.Error())
	}
	return err
}

// waitRetry waits for the next attempt after a failure and reports whether there is one.
func (l *realTimeScan) waitRetry() bool {
	timer := time.NewTimer(l.host.opts.debounce.retryDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.watcherEnded: // it is ending
	case <-l.ctx.Done():
	}
	return false
}

// neededCatchUp returns what is closed when the files that existed before or were missed are known; nil where changes
// can be reported without that.
func (l *realTimeScan) neededCatchUp() <-chan struct{} {
	l.host.mu.Lock()
	caught := l.caughtUp
	l.host.mu.Unlock()
	if !l.isBaselineKnown() && !l.queue.hasDirs() {
		return nil
	}
	return caught
}

// awaitCatchUp waits for that.
func (l *realTimeScan) awaitCatchUp() {
	caught := l.neededCatchUp()
	if caught == nil {
		return
	}
	select {
	case <-caught:
	case <-l.host.runCtx.Done():
	}
}
