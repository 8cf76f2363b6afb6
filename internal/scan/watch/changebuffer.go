package watch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	gatherDelay        = 200 * time.Millisecond // from the first change to its delivery
	maxGatheredChanges = 4096                   // changes that wait at most
)

// ErrClosed is the error of Run when the watcher was closed.
var ErrClosed = errors.New("the watcher is closed")

// changeBuffer keeps changes until they are delivered: each path once with its last change, in the
// order of these, and never more than a limit: beyond it the directories with the most changes
// replace those below them. Any goroutine may add.
type changeBuffer struct {
	roots       []string
	maxChanges  int
	nonEmpty    chan struct{} // has an element while changes wait
	flushWanted chan struct{} // has an element when a caller waits for them
	done        chan struct{}

	mu            sync.Mutex
	changes       []Change       // with zero values where changes were replaced
	byPath        map[string]int // path -> index in the list
	lastAdded     uint64         // number of the last event that was added, of a method that numbers them
	lastDelivered uint64         // that of the last one that was delivered

	flushWaiters      []chan struct{} // closed when all changes added until now are taken
	deliveringWaiters []chan struct{} // of them, those whose batch is being taken
}

func newChangeBuffer(roots []string) *changeBuffer {
	return &changeBuffer{
		roots: roots, maxChanges: maxGatheredChanges, byPath: map[string]int{},
		nonEmpty: make(chan struct{}, 1), flushWanted: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// add adds one change.
func (g *changeBuffer) add(path string, what ChangeKind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.coveredLocked(path, what) {
		return
	}
	if i, ok := g.byPath[path]; ok {
		if old := g.changes[i].Kind; old == what || old == DirChanged && what == FileChanged {
			return // a walk of the directory sees the file that took its place
		}
		g.changes[i] = Change{}
	}
	g.byPath[path] = len(g.changes)
	g.changes = append(g.changes, Change{path, what})
	if len(g.byPath) > g.maxChanges {
		g.collapseLocked()
	}
	if len(g.changes) > 2*g.maxChanges {
		g.compactLocked()
	}
	select {
	case g.nonEmpty <- struct{}{}:
	default:
	}
}

// setLastAdded records that events up to this one were added.
func (g *changeBuffer) setLastAdded(event uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastAdded = event
}

// deliveredEvent returns the last event that was delivered, 0 for none.
func (g *changeBuffer) deliveredEvent() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.byPath) == 0 {
		g.lastDelivered = g.lastAdded // later events caused no change
	}
	return g.lastDelivered
}

// coveredLocked reports whether a waiting change includes this one: a directory above is walked
// anyway, or is gone.
func (g *changeBuffer) coveredLocked(path string, what ChangeKind) bool {
	for p := parentPath(path); p != ""; p = parentPath(p) {
		i, ok := g.byPath[p]
		if !ok {
			continue
		}
		if w := g.changes[i].Kind; w == DirChanged || w == Removed && what == Removed {
			return true
		}
	}
	return false
}

// compactLocked removes replaced changes, and those that a later one covers.
func (g *changeBuffer) compactLocked() {
	var out []Change
	for i, c := range g.changes {
		if c.Kind != 0 && !g.hasLaterLocked(c.Path, i) {
			out = append(out, c)
		}
	}
	g.changes = out
	clear(g.byPath)
	for i, c := range out {
		g.byPath[c.Path] = i
	}
}

// hasLaterLocked reports whether a directory above has a change after index i.
func (g *changeBuffer) hasLaterLocked(path string, i int) bool {
	for p := parentPath(path); p != ""; p = parentPath(p) {
		if j, ok := g.byPath[p]; ok && j > i && g.changes[j].Kind != FileChanged {
			return true
		}
	}
	return false
}

// collapseLocked replaces changes by their directories until at most half of the limit is left. The
// deepest ones that have a good part of the changes go first, so that one change elsewhere never
// widens to a directory high up.
func (g *changeBuffer) collapseLocked() {
	g.compactLocked()
	goal := g.maxChanges / 2
	total := len(g.changes)
	if total <= goal {
		return
	}
	counts := g.countByDirLocked()
	dirs := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) // a descendant has the longer path
	})
	whole := map[string]bool{}
	for share := goal; total > goal && share > 1; share /= 2 {
		for _, f := range dirs {
			saved := counts[f] - 1
			if total <= goal || counts[f] < share || whole[f] {
				continue
			}
			whole[f] = true
			for p := f; p != ""; p = parentPath(p) {
				if _, ok := counts[p]; ok {
					counts[p] -= saved
				}
			}
			total -= saved
		}
	}
	g.replaceLocked(whole)
}

// countByDirLocked counts for each directory below the roots the changes that are in it.
func (g *changeBuffer) countByDirLocked() map[string]int {
	counts := map[string]int{}
	for _, c := range g.changes {
		i := slices.IndexFunc(g.roots, func(r string) bool { return isWithin(r, c.Path) })
		if i < 0 {
			continue
		}
		for p := c.Path; p != g.roots[i]; {
			p = parentPath(p)
			counts[p]++
		}
	}
	return counts
}

// replaceLocked replaces changes by those of their directories.
func (g *changeBuffer) replaceLocked(whole map[string]bool) {
	list := g.changes
	g.changes = nil
	clear(g.byPath)
	put := func(path string, what ChangeKind) {
		if _, ok := g.byPath[path]; !ok {
			g.byPath[path] = len(g.changes)
			g.changes = append(g.changes, Change{path, what})
		}
	}
	for _, c := range list {
		outer := ""
		for p := parentPath(c.Path); p != ""; p = parentPath(p) {
			if whole[p] {
				outer = p
			}
		}
		switch {
		case outer != "":
			put(outer, DirChanged)
		case whole[c.Path]:
			put(c.Path, DirChanged)
		default:
			put(c.Path, c.Kind)
		}
	}
}

// nextBatch waits for changes, gathers for a while, and returns them. A call confirms that the changes
// returned before were taken.
func (g *changeBuffer) nextBatch(ctx context.Context) ([]Change, error) {
	for {
		g.wakeFlushed()
		if err := g.waitForBatch(ctx); err != nil {
			return nil, err
		}
		if list := g.takeAll(); len(list) > 0 {
			return list, nil
		}
	}
}

// waitForBatch waits until changes are to be delivered, or a caller waits for them.
func (g *changeBuffer) waitForBatch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-g.done:
		return ErrClosed
	case <-g.flushWanted:
		return nil
	case <-g.nonEmpty:
	}
	wait := time.NewTimer(gatherDelay)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		g.wake() // a later Run gets them
		return ctx.Err()
	case <-g.done:
	case <-g.flushWanted:
	case <-wait.C:
	}
	return nil
}

// flush waits until all changes added before are taken.
func (g *changeBuffer) flush(ctx context.Context) error {
	done := make(chan struct{})
	g.mu.Lock()
	g.flushWaiters = append(g.flushWaiters, done)
	g.mu.Unlock()
	select {
	case g.flushWanted <- struct{}{}:
	default:
	}
	select {
	case <-done:
		return nil
	case <-g.done:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wakeFlushed wakes the callers whose batch was handled.
func (g *changeBuffer) wakeFlushed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, done := range g.deliveringWaiters {
		close(done)
	}
	g.deliveringWaiters = nil
}

// wake signals the next call of next that changes wait.
func (g *changeBuffer) wake() {
	select {
	case g.nonEmpty <- struct{}{}:
	default:
	}
}

// takeAll empties the buffer.
func (g *changeBuffer) takeAll() []Change {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.compactLocked()
	g.lastDelivered = g.lastAdded
	g.deliveringWaiters, g.flushWaiters = append(g.deliveringWaiters, g.flushWaiters...), nil
	out := g.changes
	g.changes = nil
	if len(g.byPath) > 256 {
		g.byPath = map[string]int{} // the buckets of a storm are released
	}
	clear(g.byPath)
	select {
	case <-g.nonEmpty:
	default:
	}
	return out
}

// close wakes all waiting callers.
func (g *changeBuffer) close() { close(g.done) }
