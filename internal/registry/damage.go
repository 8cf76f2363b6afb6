package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// damage returns all that cannot be served: templates that could not be read, and versions with a layer that is
// missing or damaged.
func (r *Registry) damage() []layout.Damage {
	snap := r.snap.Load()
	out := slices.Clone(snap.damaged)
	r.mu.Lock()
	bad := maps.Clone(r.bad)
	r.mu.Unlock()
	if len(bad) == 0 {
		return out
	}
	for _, e := range snap.order {
		for i := range e.t.Versions {
			for root := range layersOf(&e.t.Versions[i]) {
				if problem := bad[root]; problem != "" {
					out = append(out,
						layout.Damage{ID: e.t.ID, Number: i, Problem: fmt.Sprintf("layer file %s %s", root, problem)})
					break
				}
			}
		}
	}
	return out
}

// keepNamed keeps the layers that the directory of a damaged template names. Its version list is lost, but the
// layers stay as long as an operator may inspect the directory. place is relative to the storage.
func (r *Registry) keepNamed(place string) {
	var roots []blob.Digest
	for _, name := range r.dir.NamedLayers(place) {
		if root, err := blob.ParseDigest(strings.TrimSuffix(name, layout.LayerSuffix)); err == nil {
			roots = append(roots, root)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseLocked(place)
	r.kept[place] = roots
	for _, root := range roots {
		r.refs[root]++
	}
}

// releaseLocked reverts keepNamed.
func (r *Registry) releaseLocked(place string) {
	for _, root := range r.kept[place] {
		if r.refs[root]--; r.refs[root] == 0 {
			delete(r.refs, root)
		}
	}
	delete(r.kept, place)
}

// markDamaged records that a layer must not be used, and why: the reason begins with a verb.
func (r *Registry) markDamaged(root blob.Digest, problem string) {
	r.mu.Lock()
	known := r.bad[root] == problem
	r.bad[root] = problem
	r.mu.Unlock()
	if !known {
		r.metrics.found.Inc()
		r.log.Error("damaged layer: push it again, or revert the versions that need it", "layer", root.String(),
			"problem",
			problem)
		r.saveScrub()
	}
}

// clearDamage removes the damage mark of a layer that was found intact.
func (r *Registry) clearDamage(root blob.Digest) {
	r.mu.Lock()
	known := r.bad[root] != ""
	delete(r.bad, root)
	r.mu.Unlock()
	if known {
		r.log.Info("damaged layer can be read again", "layer", root.String())
		r.saveScrub()
	}
}
