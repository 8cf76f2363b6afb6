package registry

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// snapshot is all metadata at one moment. It is immutable except for the times of pulls and the scan results.
type snapshot struct {
	templates map[string]*entry // by id
	order     []*entry          // by name, then id
	damaged   []layout.Damage

	named  sync.Once
	naming map[blob.Digest][]string // layer -> ids of the templates that have it, once named is done
}

// entry is one template of a snapshot.
type entry struct {
	t        *layout.Template // immutable
	size     int64
	added    []int64 // by each version: see layout.Template.Increments
	lastPush int64 // epoch seconds
	tips     map[string]bool // of all chains: see tipsOf
	pulls    *pulls          // shared by all snapshots of the template
	scans    *scans          // likewise

	roots func() map[blob.Digest]bool // of all layers; made at the first call
}

func newEntry(t *layout.Template, p *pulls, s *scans) *entry {
	e := &entry{
		t: t, added: t.Increments(), tips: tipsOf(t), pulls: p, scans: s,
		roots: sync.OnceValue(func() map[blob.Digest]bool { return rootsOf(t) }),
	}
	for i, v := range t.Versions {
		e.size += e.added[i]
		e.lastPush = max(e.lastPush, v.LastPush)
	}
	return e
}

// rootsOf returns the layers of all versions of a template.
func rootsOf(t *layout.Template) map[blob.Digest]bool {
	roots := map[blob.Digest]bool{}
	for i := range t.Versions {
		for root := range layersOf(&t.Versions[i]) {
			roots[root] = true
		}
	}
	return roots
}

// with returns a copy of the snapshot in which a template is t; nil removes it.
func (s *snapshot) with(id string, t *layout.Template) *snapshot {
	old := s.templates[id]
	next := &snapshot{templates: maps.Clone(s.templates), order: s.order}
	next.damaged = slices.DeleteFunc(slices.Clone(s.damaged), func(d layout.Damage) bool {
		return d.ID == id && !sameVersion(old, t, d.Number)
	})
	if t == nil {
		delete(next.templates, id)
		next.order = slices.DeleteFunc(slices.Clone(s.order), func(e *entry) bool { return e == old })
		return next
	}
	if old == nil {
		next.templates[id] = newEntry(t, newPulls(nil), &scans{})
		next.sort()
		return next
	}
	e := newEntry(t, old.pulls, old.scans)
	next.templates[id] = e
	next.order = slices.Clone(s.order)
	next.order[slices.Index(s.order, old)] = e // the name of a template never changes
	return next
}

// sameVersion reports whether a version is the same before and after a change.
func sameVersion(old *entry, t *layout.Template, number int) bool {
	return old != nil && t != nil && number >= 0 && number < min(len(old.t.Versions), len(t.Versions)) &&
		old.t.Versions[number].Session == t.Versions[number].Session &&
		old.t.Versions[number].ContentID == t.Versions[number].ContentID
}

func (s *snapshot) sort() {
	s.order = slices.SortedFunc(maps.Values(s.templates), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.t.Name, b.t.Name), cmp.Compare(a.t.ID, b.t.ID))
	})
}

// pulls are the times of the last pulls of one template, in epoch seconds.
type pulls struct {
	newest atomic.Int64

	mu    sync.Mutex       // guards the fields below
	last  map[string]int64 // content id -> time
	lines int              // lines of the log since it was folded
}

func newPulls(last map[string]int64) *pulls {
	if last == nil {
		last = map[string]int64{}
	}
	p := &pulls{last: last, lines: len(last)}
	for _, when := range last {
		p.newest.Store(max(p.newest.Load(), when))
	}
	return p
}

func (p *pulls) of(content string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[content]
}

// layersOf returns the layers of a version, once per occurrence.
func layersOf(v *layout.Version) iter.Seq[blob.Digest] {
	return func(yield func(blob.Digest) bool) {
		for _, f := range v.Files {
			for _, l := range f.Layers {
				root, err := blob.ParseDigest(l.Root)
				if err == nil && !yield(root) {
					return
				}
			}
		}
	}
}

// reference adds by to the reference counts of a template's layers. Open calls it before other goroutines
// exist; afterwards the caller holds mu.
func (r *Registry) reference(t *layout.Template, by int) {
	for i := range t.Versions {
		for root := range layersOf(&t.Versions[i]) {
			if r.refs[root] += by; r.refs[root] == 0 {
				delete(r.refs, root)
			}
		}
	}
}

// swap publishes t to readers; nil removes the template. The caller holds write and has written the disk.
func (r *Registry) swap(id string, t *layout.Template) {
	snap := r.snap.Load()
	r.mu.Lock()
	if t != nil {
		r.reference(t, +1)
	}
	if old := snap.templates[id]; old != nil {
		r.reference(old.t, -1)
	}
	r.releaseLocked(layout.TemplatePath(id))
	r.mu.Unlock()
	r.snap.Store(snap.with(id, t))
	r.watching.Lock()
	defer r.watching.Unlock()
	for changed := range r.watchers {
		(*changed)()
	}
}

// OnChange registers a function that is called after each change of a template or of its versions, until stop
// is called. It must neither block nor call the registry.
func (r *Registry) OnChange(changed func()) (stop func()) {
	r.watching.Lock()
	defer r.watching.Unlock()
	if r.watchers == nil {
		r.watchers = map[*func()]struct{}{}
	}
	r.watchers[&changed] = struct{}{}
	return func() {
		r.watching.Lock()
		defer r.watching.Unlock()
		delete(r.watchers, &changed)
	}
}
