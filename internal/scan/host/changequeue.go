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
	quiet, most, retry time.Duration
	changes            int // that wait at most; more become those of their directories. 0 is pendingMost
}

var usualSettling = debounce{quiet: time.Second, most: 3 * time.Second, retry: 10 * time.Second}

// pendingMost is how many changes usually wait at most.
const pendingMost = 16 << 10

// changeQueue has the changes that wait until their files are quiet.
type changeQueue struct {
	root     string // that is scanned
	settling debounce
	wake     chan struct{} // of capacity 1: a change waits

	mu    sync.Mutex
	items map[string]*change // path of the system -> what happened to it
}

// change is a waiting change.
type change struct {
	path        string
	what        ChangeKind
	first, last time.Time
}

func newChangeQueue(root string, s debounce) *changeQueue {
	s.changes = cmp.Or(s.changes, pendingMost)
	return &changeQueue{root: root, settling: s, wake: make(chan struct{}, 1), items: map[string]*change{}}
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
	if len(p.items) > p.settling.changes {
		p.foldLocked()
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// addLocked adds one change. A directory remains one whatever happens to it later: when it is gone,
// the walk of it finds nothing.
func (p *changeQueue) addLocked(c Change, now time.Time) {
	old := p.items[c.Path]
	if old == nil {
		p.items[c.Path] = &change{c.Path, c.What, now, now}
		return
	}
	old.last = now
	if old.what != FolderChanged {
		old.what = c.What
	}
}

// putBack returns changes to the queue. Newer changes take precedence.
func (p *changeQueue) putBack(list []change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range list {
		now := p.items[c.path]
		switch {
		case now == nil:
			p.items[c.path] = &c
		case c.what == FolderChanged:
			now.what = FolderChanged
		}
	}
	if len(p.items) > p.settling.changes {
		p.foldLocked()
	}
}

// foldLocked replaces changes by those of their directories, until few are left.
func (p *changeQueue) foldLocked() {
	for len(p.items) > p.settling.changes/4 {
		folded := map[string]*change{}
		for _, c := range p.items {
			at := path.Dir(c.path)
			if !within(p.root, at) { // what is above the root is not scanned
				at = p.root
			}
			f := folded[at]
			if f == nil {
				f = &change{at, FolderChanged, c.first, c.last}
				folded[at] = f
			}
			if c.first.Before(f.first) {
				f.first = c.first
			}
			if c.last.After(f.last) {
				f.last = c.last
			}
		}
		p.items = folded
	}
}

// due takes the changes that are quiet, and returns when the next will be; zero is never.
func (p *changeQueue) due(now time.Time) (list []change, next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, c := range p.items {
		when := c.last.Add(p.settling.quiet)
		if latest := c.first.Add(p.settling.most); latest.Before(when) {
			when = latest
		}
		if when.After(now) {
			if next.IsZero() || when.Before(next) {
				next = when
			}
			continue
		}
		list = append(list, *c)
		delete(p.items, at)
	}
	if len(p.items) == 0 {
		p.items = map[string]*change{} // the memory of a large map is released
	}
	return list, next
}

// all takes everything.
func (p *changeQueue) all() []change {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []change
	for _, c := range p.items {
		out = append(out, *c)
	}
	p.items = map[string]*change{}
	return out
}

// dirs reports whether one of the waiting changes is of a directory.
func (p *changeQueue) dirs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.items {
		if c.what == FolderChanged {
			return true
		}
	}
	return false
}

func (p *changeQueue) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.items)
}

// siblingChange returns which other path to inspect when a path changes, because extractors read more than
// one file: the receipt of a keg next to its formula, the copies of a cask next to the directory of
// its version.
func siblingChange(c Change) (Change, bool) {
	if c.What == FileChanged {
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
	return Change{c.Path[:room] + token, FolderChanged}, true
}
