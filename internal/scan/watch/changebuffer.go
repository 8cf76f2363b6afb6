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
	gatherTime  = 200 * time.Millisecond // from the first change to its delivery
	gatherLimit = 4096                   // changes that wait at most
)

// ErrClosed is the error of Run when the watcher was closed.
var ErrClosed = errors.New("the watcher is closed")

// changeBuffer keeps changes until they are delivered: each path once with its last change, in the
// order of these, and never more than a limit: beyond it the directories with the most changes
// replace those below them. Any goroutine may add.
type changeBuffer struct {
	roots []string
	limit int
	first chan struct{} // has an element while changes wait
	hurry chan struct{} // has an element when a caller waits for them
	done  chan struct{}

	mu   sync.Mutex
	list []Change       // with zero values where changes were replaced
	at   map[string]int // path -> index in the list
	mark uint64         // number of the last event that was added, of a method that numbers them
	left uint64         // that of the last one that was delivered

	asked []chan struct{} // closed when all changes added until now are taken
	given []chan struct{} // of them, those whose batch is being taken
}

func newChangeBuffer(roots []string) *changeBuffer {
	return &changeBuffer{
		roots: roots, limit: gatherLimit, at: map[string]int{},
		first: make(chan struct{}, 1), hurry: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// add adds one change.
func (g *changeBuffer) add(path string, what ChangeKind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.coveredLocked(path, what) {
		return
	}
	if i, ok := g.at[path]; ok {
		if old := g.list[i].What; old == what || old == Folder && what == File {
			return // a walk of the directory sees the file that took its place
		}
		g.list[i] = Change{}
	}
	g.at[path] = len(g.list)
	g.list = append(g.list, Change{path, what})
	if len(g.at) > g.limit {
		g.collapseLocked()
	}
	if len(g.list) > 2*g.limit {
		g.compactLocked()
	}
	select {
	case g.first <- struct{}{}:
	default:
	}
}

// reached records that events up to this one were added.
func (g *changeBuffer) reached(event uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mark = event
}

// delivered returns the last event that was delivered, 0 for none.
func (g *changeBuffer) delivered() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.at) == 0 {
		g.left = g.mark // later events caused no change
	}
	return g.left
}

// coveredLocked reports whether a waiting change includes this one: a directory above is walked
// anyway, or is gone.
func (g *changeBuffer) coveredLocked(path string, what ChangeKind) bool {
	for p := parent(path); p != ""; p = parent(p) {
		i, ok := g.at[p]
		if !ok {
			continue
		}
		if w := g.list[i].What; w == Folder || w == Gone && what == Gone {
			return true
		}
	}
	return false
}

// compactLocked removes replaced changes, and those that a later one covers.
func (g *changeBuffer) compactLocked() {
	var out []Change
	for i, c := range g.list {
		if c.What != 0 && !g.laterLocked(c.Path, i) {
			out = append(out, c)
		}
	}
	g.list = out
	clear(g.at)
	for i, c := range out {
		g.at[c.Path] = i
	}
}

// laterLocked reports whether a directory above has a change after index i.
func (g *changeBuffer) laterLocked(path string, i int) bool {
	for p := parent(path); p != ""; p = parent(p) {
		if j, ok := g.at[p]; ok && j > i && g.list[j].What != File {
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
	goal := g.limit / 2
	total := len(g.list)
	if total <= goal {
		return
	}
	counts := g.countLocked()
	folders := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) // a descendant has the longer path
	})
	whole := map[string]bool{}
	for share := goal; total > goal && share > 1; share /= 2 {
		for _, f := range folders {
			saved := counts[f] - 1
			if total <= goal || counts[f] < share || whole[f] {
				continue
			}
			whole[f] = true
			for p := f; p != ""; p = parent(p) {
				if _, ok := counts[p]; ok {
					counts[p] -= saved
				}
			}
			total -= saved
		}
	}
	g.replaceLocked(whole)
}

// countLocked counts for each directory below the roots the changes that are in it.
func (g *changeBuffer) countLocked() map[string]int {
	counts := map[string]int{}
	for _, c := range g.list {
		i := slices.IndexFunc(g.roots, func(r string) bool { return within(r, c.Path) })
		if i < 0 {
			continue
		}
		for p := c.Path; p != g.roots[i]; {
			p = parent(p)
			counts[p]++
		}
	}
	return counts
}

// replaceLocked replaces changes by those of their directories.
func (g *changeBuffer) replaceLocked(whole map[string]bool) {
	list := g.list
	g.list = nil
	clear(g.at)
	put := func(path string, what ChangeKind) {
		if _, ok := g.at[path]; !ok {
			g.at[path] = len(g.list)
			g.list = append(g.list, Change{path, what})
		}
	}
	for _, c := range list {
		outer := ""
		for p := parent(c.Path); p != ""; p = parent(p) {
			if whole[p] {
				outer = p
			}
		}
		switch {
		case outer != "":
			put(outer, Folder)
		case whole[c.Path]:
			put(c.Path, Folder)
		default:
			put(c.Path, c.What)
		}
	}
}

// next waits for changes, gathers for a while, and returns them. A call confirms that the changes
// returned before were taken.
func (g *changeBuffer) next(ctx context.Context) ([]Change, error) {
	for {
		g.taken()
		if err := g.collectSome(ctx); err != nil {
			return nil, err
		}
		if list := g.drain(); len(list) > 0 {
			return list, nil
		}
	}
}

// collectSome waits until changes are to be delivered, or a caller waits for them.
func (g *changeBuffer) collectSome(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-g.done:
		return ErrClosed
	case <-g.hurry:
		return nil
	case <-g.first:
	}
	wait := time.NewTimer(gatherTime)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		g.wake() // a later Run gets them
		return ctx.Err()
	case <-g.done:
	case <-g.hurry:
	case <-wait.C:
	}
	return nil
}

// flush waits until all changes added before are taken.
func (g *changeBuffer) flush(ctx context.Context) error {
	done := make(chan struct{})
	g.mu.Lock()
	g.asked = append(g.asked, done)
	g.mu.Unlock()
	select {
	case g.hurry <- struct{}{}:
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

// taken wakes the callers whose batch was handled.
func (g *changeBuffer) taken() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, done := range g.given {
		close(done)
	}
	g.given = nil
}

// wake signals the next call of next that changes wait.
func (g *changeBuffer) wake() {
	select {
	case g.first <- struct{}{}:
	default:
	}
}

// drain empties the buffer.
func (g *changeBuffer) drain() []Change {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.compactLocked()
	g.left = g.mark
	g.given, g.asked = append(g.given, g.asked...), nil
	out := g.list
	g.list = nil
	if len(g.at) > 256 {
		g.at = map[string]int{} // the buckets of a storm are released
	}
	clear(g.at)
	select {
	case <-g.first:
	default:
	}
	return out
}

// end wakes all waiting callers.
func (g *changeBuffer) end() { close(g.done) }
