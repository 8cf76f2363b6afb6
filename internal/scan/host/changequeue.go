package host

import (
	"cmp"
	"path"
	"strings"
	"sync"
	"time"
)

// debounce has the delays of a changed file. It is how long a file must be quiet before it is read,
// how long that is delayed at most, and how long a change that could not be stored waits for the
// next attempt.
type debounce struct {
	quietTime, maxDelay, retryDelay time.Duration
	// maxChanges limits the waiting changes; more become those of their directories. 0 is
	// defaultMaxChanges.
	maxChanges int
}

var defaultDebounce = debounce{quietTime: time.Second, maxDelay: 3 * time.Second, retryDelay: 10 * time.Second}

// defaultMaxChanges is how many changes usually wait at most.
const defaultMaxChanges = 16 << 10

// changeQueue has the changes that wait until their files are quiet.
type changeQueue struct {
	root     string // that is scanned
	debounce debounce
	wake     chan struct{} // of capacity 1: a change waits

	mu      sync.Mutex
	changes map[string]*pendingChange // path of the system -> what happened to it
	waiters []chan struct{}           // closed when what waits now is in the inventory
}

// pendingChange is a waiting change.
type pendingChange struct {
	path            string
	kind            ChangeKind
	firstAt, lastAt time.Time
}

func newChangeQueue(root string, s debounce) *changeQueue {
	s.maxChanges = cmp.Or(s.maxChanges, defaultMaxChanges)
	return &changeQueue{root: root, debounce: s, wake: make(chan struct{}, 1), changes: map[string]*pendingChange{}}
}

// add adds changes.
func (p *changeQueue) add(list []Change, now time.Time) {
	if len(list) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range list {
		p.addLocked(c, now)
	}
	if len(p.changes) > p.debounce.maxChanges {
		p.collapseLocked()
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// addLocked adds one change. A directory remains one whatever happens to it later: when it is gone,
// the walk of it finds nothing.
func (p *changeQueue) addLocked(c Change, now time.Time) {
	old := p.changes[c.Path]
	if old == nil {
		p.changes[c.Path] = &pendingChange{c.Path, c.Kind, now, now}
		return
	}
	old.lastAt = now
	if old.kind != DirChanged {
		old.kind = c.Kind
	}
}

// await asks for all changes without their delay. The channel is closed when they are in the inventory.
func (p *changeQueue) await() <-chan struct{} {
	done := make(chan struct{})
	p.mu.Lock()
	p.waiters = append(p.waiters, done)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return done
}

// takeAwaited takes the callers that wait, with all changes; both are empty when no caller waits.
func (p *changeQueue) takeAwaited() (waiters []chan struct{}, list []pendingChange) {
	p.mu.Lock()
	waiters, p.waiters = p.waiters, nil
	p.mu.Unlock()
	if len(waiters) > 0 {
		list = p.takeAll()
	}
	return waiters, list
}

// putBackAwaited returns callers to the queue: their changes could not be stored yet.
func (p *changeQueue) putBackAwaited(waiters []chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters = append(p.waiters, waiters...)
}

// putBack returns changes to the queue. Newer changes take precedence.
func (p *changeQueue) putBack(list []pendingChange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range list {
		now := p.changes[c.path]
		switch {
		case now == nil:
			p.changes[c.path] = &c
		case c.kind == DirChanged:
			now.kind = DirChanged
		}
	}
	if len(p.changes) > p.debounce.maxChanges {
		p.collapseLocked()
	}
}

// collapseLocked replaces changes by those of their directories, until few are left.
func (p *changeQueue) collapseLocked() {
	for len(p.changes) > p.debounce.maxChanges/4 {
		folded := map[string]*pendingChange{}
		for _, c := range p.changes {
			at := path.Dir(c.path)
			if !isWithin(p.root, at) { // what is above the root is not scanned
				at = p.root
			}
			f := folded[at]
			if f == nil {
				f = &pendingChange{at, DirChanged, c.firstAt, c.lastAt}
				folded[at] = f
			}
			if c.firstAt.Before(f.firstAt) {
				f.firstAt = c.firstAt
			}
			if c.lastAt.After(f.lastAt) {
				f.lastAt = c.lastAt
			}
		}
		p.changes = folded
	}
}

// takeDue takes the changes that are quiet, and returns when the next will be; zero is never.
func (p *changeQueue) takeDue(now time.Time) (list []pendingChange, next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, c := range p.changes {
		when := c.lastAt.Add(p.debounce.quietTime)
		if latest := c.firstAt.Add(p.debounce.maxDelay); latest.Before(when) {
			when = latest
		}
		if when.After(now) {
			if next.IsZero() || when.Before(next) {
				next = when
			}
			continue
		}
		list = append(list, *c)
		delete(p.changes, at)
	}
	if len(p.changes) == 0 {
		p.changes = map[string]*pendingChange{} // the memory of a large map is released
	}
	return list, next
}

// takeAll takes everything.
func (p *changeQueue) takeAll() []pendingChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []pendingChange
	for _, c := range p.changes {
		out = append(out, *c)
	}
	p.changes = map[string]*pendingChange{}
	return out
}

// hasDirs reports whether one of the waiting changes is of a directory.
func (p *changeQueue) hasDirs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.changes {
		if c.kind == DirChanged {
			return true
		}
	}
	return false
}

func (p *changeQueue) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.changes)
}

// siblingChange returns which other path to inspect when a path changes, because extractors read more than
// one file: the receipt of a keg next to its formula, the copies of a cask next to the directory of
// its version.
func siblingChange(c Change) (Change, bool) {
	if c.Kind == FileChanged {
		if keg, _, ok := strings.Cut(c.Path, "/.brew/"); ok && strings.Contains(keg, "/Cellar/") {
			return Change{keg + "/INSTALL_RECEIPT.json", FileChanged}, true
		}
		return Change{}, false
	}
	i := strings.LastIndex(c.Path, "/Caskroom/")
	if i < 0 {
		return Change{}, false
	}
	room := i + len("/Caskroom/")
	token, version, ok := strings.Cut(c.Path[room:], "/")
	if !ok || version == "" || strings.Contains(version, "/") {
		return Change{}, false
	}
	return Change{c.Path[:room] + token, DirChanged}, true
}
