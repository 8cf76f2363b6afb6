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
	templates map[string]*templateEntry // by id
	sorted    []*templateEntry          // by name, then id
	damaged   []layout.DamagedTemplate

	namingOnce       sync.Once
	templatesByLayer map[blob.Digest][]string // layer -> ids of the templates that have it, once named is done
}

// templateEntry is one template of a snapshot.
type templateEntry struct {
	template    *layout.Template // immutable
	storedBytes int64
	increments  []int64         // by each version: see layout.Template.Increments
	lastPush    int64           // epoch seconds
	chainIDs    map[string]bool // of all chains: see chainIDsOf
	pulls       *pullTimes      // shared by all snapshots of the template
	scans       *scanNotes      // likewise

	layers func() map[blob.Digest]bool // of all layers; made at the first call
}

func newTemplateEntry(t *layout.Template, p *pullTimes, s *scanNotes) *templateEntry {
	e := &templateEntry{
		template: t, increments: t.Increments(), chainIDs: chainIDsOf(t), pulls: p, scans: s,
		layers: sync.OnceValue(func() map[blob.Digest]bool { return layersOfTemplate(t) }),
	}
	for i, v := range t.Versions {
		e.storedBytes += e.increments[i]
		e.lastPush = max(e.lastPush, v.LastPush)
	}
	return e
}

// layersOfTemplate returns the layers of all versions of a template.
func layersOfTemplate(t *layout.Template) map[blob.Digest]bool {
	roots := map[blob.Digest]bool{}
	for i := range t.Versions {
		for root := range layersOfVersion(&t.Versions[i]) {
			roots[root] = true
		}
	}
	return roots
}

// withTemplate returns a copy of the snapshot in which a template is t; nil removes it.
func (s *snapshot) withTemplate(id string, t *layout.Template) *snapshot {
	old := s.templates[id]
	next := &snapshot{templates: maps.Clone(s.templates), sorted: s.sorted}
	next.damaged = slices.DeleteFunc(slices.Clone(s.damaged), func(d layout.DamagedTemplate) bool {
		return d.ID == id && !sameVersion(old, t, d.Number)
	})
	if t == nil {
		delete(next.templates, id)
		next.sorted = slices.DeleteFunc(slices.Clone(s.sorted), func(e *templateEntry) bool { return e == old })
		return next
	}
	if old == nil {
		next.templates[id] = newTemplateEntry(t, newPullTimes(nil), &scanNotes{})
		next.sortTemplates()
		return next
	}
	e := newTemplateEntry(t, old.pulls, old.scans)
	next.templates[id] = e
	next.sorted = slices.Clone(s.sorted)
	next.sorted[slices.Index(s.sorted, old)] = e // the name of a template never changes
	return next
}

// sameVersion reports whether a version is the same before and after a change.
func sameVersion(old *templateEntry, t *layout.Template, number int) bool {
	return old != nil && t != nil && number >= 0 && number < min(len(old.template.Versions), len(t.Versions)) &&
		old.template.Versions[number].Session == t.Versions[number].Session &&
		old.template.Versions[number].ContentID == t.Versions[number].ContentID
}

func (s *snapshot) sortTemplates() {
	s.sorted = slices.SortedFunc(maps.Values(s.templates), func(a, b *templateEntry) int {
		return cmp.Or(cmp.Compare(a.template.Name, b.template.Name), cmp.Compare(a.template.ID, b.template.ID))
	})
}

// pullTimes are the times of the last pulls of one template, in epoch seconds.
type pullTimes struct {
	newestAt atomic.Int64

	mu            sync.Mutex       // guards the fields below
	lastByContent map[string]int64 // content id -> time
	logLines      int              // lines of the log since it was folded
}

func newPullTimes(last map[string]int64) *pullTimes {
	if last == nil {
		last = map[string]int64{}
	}
	p := &pullTimes{lastByContent: last, logLines: len(last)}
	for _, when := range last {
		p.newestAt.Store(max(p.newestAt.Load(), when))
	}
	return p
}

func (p *pullTimes) lastPull(content string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastByContent[content]
}

// layersOfVersion returns the layers of a version, once per occurrence.
func layersOfVersion(v *layout.Version) iter.Seq[blob.Digest] {
	return func(yield func(blob.Digest) bool) {
		for _, f := range v.Files {
			for _, l := range f.Layers {
				root, err := blob.ParseDigest(l.Digest)
				if err == nil && !yield(root) {
					return
				}
			}
		}
	}
}

// addReferences adds by to the reference counts of a template's layers. Open calls it before other goroutines
// exist; afterwards the caller holds mu.
func (r *Registry) addReferences(t *layout.Template, by int) {
	for i := range t.Versions {
		for root := range layersOfVersion(&t.Versions[i]) {
			if r.layerRefs[root] += by; r.layerRefs[root] == 0 {
				delete(r.layerRefs, root)
			}
		}
	}
}

// publishTemplate publishes t to readers; nil removes the template. The caller holds write and has written the disk.
func (r *Registry) publishTemplate(id string, t *layout.Template) {
	snap := r.snapshot.Load()
	r.mu.Lock()
	if t != nil {
		r.addReferences(t, +1)
	}
	if old := snap.templates[id]; old != nil {
		r.addReferences(old.template, -1)
	}
	r.releaseNamedLocked(layout.TemplatePath(id))
	r.mu.Unlock()
	r.snapshot.Store(snap.withTemplate(id, t))
	r.watchersMu.Lock()
	defer r.watchersMu.Unlock()
	for changed := range r.watchers {
		(*changed)()
	}
}

// OnChange registers a function that is called after each change of a template or of its versions, until stop
// is called. It must neither block nor call the registry.
func (r *Registry) OnChange(changed func()) (stop func()) {
	r.watchersMu.Lock()
	defer r.watchersMu.Unlock()
	if r.watchers == nil {
		r.watchers = map[*func()]struct{}{}
	}
	r.watchers[&changed] = struct{}{}
	return func() {
		r.watchersMu.Lock()
		defer r.watchersMu.Unlock()
		delete(r.watchers, &changed)
	}
}
