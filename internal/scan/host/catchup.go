package host

import (
	"cmp"
	"time"
)

// catchUpLocked starts the search for files present when real-time scanning began, unless they are
// known. It also finds changes made while no process watched. The caller holds the lock of the
// host.
func (l *realTimeScan) catchUpLocked() {
	if l.host.memory.Noted && !l.host.missed {
		l.know()
		return
	}
	if l.host.full != nil && within(cmp.Or(l.host.full.order.Path, "/"), l.root) {
		l.know() // it finds all of it, and calls again
		return
	}
	if l.caught != nil {
		return
	}
	caught := make(chan struct{})
	l.caught = caught
	before := l.host.memory.Watched
	if l.host.memory.Noted {
		before = time.Time{}
	}
	l.tasks.Go(func() {
		defer close(caught)
		l.catchUp(before)
	})
}

// know records that all files present at the start are known.
func (l *realTimeScan) know() { l.once.Do(func() { close(l.noted) }) }

func (l *realTimeScan) known() bool {
	select {
	case <-l.noted:
		return true
	default:
		return false
	}
}

// later puts directories back into the queue.
func (l *realTimeScan) later(folders []string) {
	var list []Change
	for _, f := range folders {
		list = append(list, Change{outside(f), FolderChanged})
	}
	l.pending.add(list, time.Now())
}

func (l *realTimeScan) catchUp(before time.Time) {
	yield()
	l.host.lookAround(l.ctx)
	defer l.know() // whatever the result
	if before.IsZero() {
		l.know()
	}
	err := l.lookBack(before)
	for err != nil && l.waits() {
		err = l.lookBack(before)
	}
	l.host.mu.Lock()
	defer l.host.mu.Unlock()
	l.caught = nil
	if err == nil && l.ctx.Err() == nil && l.host.live == l {
		l.host.memory.Noted, l.host.missed = true, false
		l.host.rememberLocked()
	}
}

// lookBack searches once for files that existed before or were missed.
func (l *realTimeScan) lookBack(before time.Time) error {
	s := &step{cause: ByFullScan}
	_, err := l.pass(s, inTree(l.root), before).run(l.ctx)
	if err == nil {
		err = l.host.match(l.ctx, s)
	}
	l.host.tell(s)
	if err != nil && l.ctx.Err() == nil {
		l.host.failed(err, "What was missed could not be looked for.")
		l.host.warn("what happened before real-time scanning of " + l.root +
			" began could not be looked for at once: " + err.Error())
	}
	return err
}

// waits waits for the next attempt after a failure and reports whether there is one.
func (l *realTimeScan) waits() bool {
	timer := time.NewTimer(l.host.o.settle.retry)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.watcherEnded: // it is ending
	case <-l.ctx.Done():
	}
	return false
}

// awaitCaught waits until the files that existed before or were missed are known, where changes
// cannot be reported without that.
func (l *realTimeScan) awaitCaught() {
	l.host.mu.Lock()
	caught := l.caught
	l.host.mu.Unlock()
	if caught == nil || !l.known() && !l.pending.dirs() {
		return
	}
	select {
	case <-caught:
	case <-l.host.life.Done():
	}
}
