package registry

import (
	"cmp"
	"context"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// layerEntryOf is the entry of a layer in a template.
func layerEntryOf(x *blob.Index) layout.Layer {
	foot := x.Footer()
	l := layout.Layer{
		Digest: foot.Digest.String(), Size: x.FileSize(), IndexOffset: foot.IndexOffset,
		IndexLength: foot.IndexLength,
	}
	if tip := x.ChainID(); tip != foot.Digest {
		l.Squashes = tip.String()
	}
	return l
}

// findChain returns the shortest chain of layers with the content that tip names, among the disks of template id
// or else of any other; nil when there is none.
func (s *snapshot) findChain(id, tip string) []layout.Layer {
	if e := s.templates[id]; e != nil {
		if chain := e.findChain(tip); chain != nil {
			return chain
		}
	}
	for _, e := range s.sorted {
		if chain := e.findChain(tip); chain != nil {
			return chain
		}
	}
	return nil
}

func (e *templateEntry) findChain(tip string) []layout.Layer {
	if !e.chainIDs[tip] {
		return nil
	}
	var best []layout.Layer
	for i := range e.template.Versions {
		for _, f := range e.template.Versions[i].Files {
			if f.Kind != layout.KindDisk {
				continue
			}
			for n, l := range f.Layers {
				if l.ChainID() == tip && (best == nil || n+1 < len(best)) {
					best = f.Layers[: n+1 : n+1]
				}
			}
		}
	}
	return best
}

// restrictTo returns the snapshot restricted to some templates; nil: all of them.
func (s *snapshot) restrictTo(ids []string) *snapshot {
	if ids == nil {
		return s
	}
	few := &snapshot{templates: map[string]*templateEntry{}}
	for _, id := range ids {
		if e := s.templates[id]; e != nil && few.templates[id] == nil {
			few.templates[id], few.sorted = e, append(few.sorted, e)
		}
	}
	return few
}

// isAllowedBase reports whether a push may use a layer that it did not send: a layer of one of the given templates,
// or one that no template references. nil: any.
func (r *Registry) isAllowedBase(on []string, root string) bool {
	return on == nil || r.HasLayer(on, root)
}

// resolveChains finds the stored chains of the files of a push, or the chains of their parents, in their order: those
// of the given templates, or of all for nil.
func (r *Registry) resolveChains(ctx context.Context, req api.PushRequest, on []string) ([][]layout.Layer, error) {
	snap := r.snapshot.Load().restrictTo(on)
	out := make([][]layout.Layer, len(req.Files))
	for i, f := range req.Files {
		if out[i] = r.resolveChain(ctx, snap, req.ID, f, on); out[i] != nil || f.Parent == "" {
			continue
		}
		chain := snap.findChain(req.ID, f.Parent)
		switch {
		case chain == nil:
			return nil, missingParentError(f)
		case len(chain) >= blob.MaxChainLayers:
			return nil, farm.Errorf(farm.CodeNoParent,
				"%s has a layer chain of %d layers, which is the maximum: push the complete disk", f.Name,
				len(chain))
		}
		out[i] = chain
	}
	return out, nil
}

// resolveChain returns the chain whose content a file of a push names; nil when not all of it is stored. No version
// needs to reference it: a disk whose version was reverted is found as long as its layers are stored or in the
// trash.
func (r *Registry) resolveChain(
	ctx context.Context, snap *snapshot, id string, f api.PushFile, on []string,
) []layout.Layer {
	var above []layout.Layer // layers that no version has, base first
	var indexes int64
	for tip := f.Root; tip != ""; {
		if chain := snap.findChain(id, tip); chain != nil && f.Kind == api.FileDisk {
			above = slices.Concat(chain, above)
			break
		}
		if !r.isAllowedBase(on, tip) {
			return nil
		}
		l, parent, ok := r.findUnreferenced(ctx, tip, f, len(above) == 0)
		if indexes += l.IndexLength; !ok || len(above) == blob.MaxChainLayers || indexes > blob.MaxChainIndexSize {
			return nil
		}
		above, tip = slices.Insert(above, 0, l), parent
	}
	if len(above) > blob.MaxChainLayers || totalIndexBytes(above) > blob.MaxChainIndexSize ||
		slices.ContainsFunc(above, r.isUnusable) {
		return nil
	}
	return above
}

// findUnreferenced returns a layer that no version needs, and the name of its parent layer. It returns false
// if the layer is not here or cannot belong to the file. The last layer of a chain must have the file's size.
func (r *Registry) findUnreferenced(
	ctx context.Context, name string, f api.PushFile, last bool,
) (l layout.Layer, parent string, ok bool) {
	root, err := blob.ParseDigest(name)
	if err != nil || !r.isUsable(root) && (r.hasStoredLayer(root) || !r.restoreLayer(ctx, root)) {
		return l, "", false
	}
	x, release, err := r.readStoredIndex(ctx, root)
	if err != nil {
		return l, "", false
	}
	defer release()
	own := f
	own.Parent = parentString(x)
	if !last {
		own.Size = x.ContentSize()
	}
	return layerEntryOf(x), own.Parent, checkLayerFits(x, own) == nil
}

// isUnusable reports whether a layer is missing or damaged.
func (r *Registry) isUnusable(l layout.Layer) bool {
	root, err := blob.ParseDigest(l.Digest)
	return err != nil || !r.isUsable(root)
}

// chainIDsOf returns the names of all content that the disks of a template are or were.
func chainIDsOf(t *layout.Template) map[string]bool {
	out := map[string]bool{}
	for i := range t.Versions {
		for _, f := range t.Versions[i].Files {
			for _, l := range f.Layers {
				if f.Kind == layout.KindDisk {
					out[l.ChainID()] = true
				}
			}
		}
	}
	return out
}

func missingParentError(f api.PushFile) error {
	return farm.Errorf(farm.CodeNoParent,
		"Parent layer %s of %s not found in the registry: push the complete disk", cmp.Or(f.Parent, f.Root),
		f.Name)
}

// pinChains pins the parent layers of the files of a session. It fails when one of them is missing or damaged.
func (r *Registry) pinChains(ctx context.Context, s *session) error {
	for _, u := range s.uploads {
		for _, l := range u.parentChain {
			root, err := blob.ParseDigest(l.Digest)
			if err != nil || !r.pinStored(ctx, s, root) {
				return missingParentError(u.pushFile)
			}
		}
	}
	return nil
}
