package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// listDamage returns all that cannot be served: templates that could not be read, and versions with a layer that is
// missing or damaged.
func (r *Registry) listDamage() []layout.DamagedTemplate {
	snap := r.snapshot.Load()
	out := slices.Clone(snap.damaged)
	r.mu.Lock()
	bad := maps.Clone(r.badLayers)
	r.mu.Unlock()
	if len(bad) == 0 {
		return out
	}
	for _, e := range snap.sorted {
		for i := range e.template.Versions {
			for root := range layersOfVersion(&e.template.Versions[i]) {
				if problem := bad[root]; problem != "" {
					out = append(out,
						layout.DamagedTemplate{ID: e.template.ID, Number: i, Problem: fmt.Sprintf("layer file %s %s",
							root, problem)})
					break
				}
			}
		}
	}
	return out
}

// retainNamedLayers keeps the layers that the directory of a damaged template names. Its version list is lost, but the
// layers stay as long as an operator may inspect the directory. place is relative to the storage.
func (r *Registry) retainNamedLayers(place string) {
	var roots []blob.Digest
	for _, name := range r.dir.LayersInListFiles(place) {
		if root, err := blob.ParseDigest(strings.TrimSuffix(name, layout.LayerSuffix)); err == nil {
			roots = append(roots, root)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseNamedLocked(place)
	r.retainedLayers[place] = roots
	for _, root := range roots {
		r.layerRefs[root]++
	}
}

// releaseNamedLocked reverts retainNamedLayers.
func (r *Registry) releaseNamedLocked(place string) {
	for _, root := range r.retainedLayers[place] {
		if r.layerRefs[root]--; r.layerRefs[root] == 0 {
			delete(r.layerRefs, root)
		}
	}
	delete(r.retainedLayers, place)
}

// markDamaged records that a layer must not be used, and why: the reason begins with a verb.
func (r *Registry) markDamaged(root blob.Digest, problem string) {
	r.mu.Lock()
	known := r.badLayers[root] == problem
	r.badLayers[root] = problem
	r.mu.Unlock()
	if !known {
		r.metrics.damagedLayers.Inc()
		r.log.Error("damaged layer: push it again, or revert the versions that need it", "layer", root.String(),
			"problem",
			problem)
		r.saveScrub()
	}
}

// clearDamage removes the damage mark of a layer that was found intact.
func (r *Registry) clearDamage(root blob.Digest) {
	r.mu.Lock()
	known := r.badLayers[root] != ""
	delete(r.badLayers, root)
	r.mu.Unlock()
	if known {
		r.log.Info("damaged layer can be read again", "layer", root.String())
		r.saveScrub()
	}
}
