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

// layerOf is the entry of a layer in a template.
func layerOf(x *blob.Index) layout.Layer {
	foot := x.Footer()
	l := layout.Layer{
		Root: foot.Root.String(), Size: x.FileSize(), IndexOffset: foot.IndexOffset,
		IndexLength: foot.IndexLength,
	}
	if tip := x.ChainID(); tip != foot.Root {
		l.Tip = tip.String()
	}
	return l
}

// chainTo returns the shortest chain of layers with the content that tip names, among the disks of template id
// or else of any other; nil when there is none.
func (s *snapshot) chainTo(id, tip string) []layout.Layer {
	if e := s.templates[id]; e != nil {
		if chain := e.chainTo(tip); chain != nil {
			return chain
		}
	}
	for _, e := range s.order {
		if chain := e.chainTo(tip); chain != nil {
			return chain
		}
	}
	return nil
}

func (e *entry) chainTo(tip string) []layout.Layer {
	if !e.tips[tip] {
		return nil
	}
	var best []layout.Layer
	for i := range e.t.Versions {
		for _, f := range e.t.Versions[i].Files {
			if f.Kind != layout.Disk {
				continue
			}
			for n, l := range f.Layers {
				if l.Name() == tip && (best == nil || n+1 < len(best)) {
					best = f.Layers[: n+1 : n+1]
				}
			}
		}
	}
	return best
}

// only returns the snapshot restricted to some templates; nil: all of them.
func (s *snapshot) only(ids []string) *snapshot {
	if ids == nil {
		return s
	}
	few := &snapshot{templates: map[string]*entry{}}
	for _, id := range ids {
		if e := s.templates[id]; e != nil && few.templates[id] == nil {
			few.templates[id], few.order = e, append(few.order, e)
		}
	}
	return few
}

// canBuildOn reports whether a push may use a layer that it did not send: a layer of one of the given templates,
// or one that no template references. nil: any.
func (r *Registry) canBuildOn(on []string, root string) bool {
	return on == nil || r.HasLayer(on, root)
}

// chains finds the stored chains of the files of a push, or the chains of their parents, in their order: those
// of the given templates, or of all for nil.
func (r *Registry) chains(ctx context.Context, req api.PushRequest, on []string) ([][]layout.Layer, error) {
	snap := r.snap.Load().only(on)
	out := make([][]layout.Layer, len(req.Files))
	for i, f := range req.Files {
		if out[i] = r.chainOf(ctx, snap, req.ID, f, on); out[i] != nil || f.Parent == "" {
			continue
		}
		chain := snap.chainTo(req.ID, f.Parent)
		switch {
		case chain == nil:
			return nil, noParent(f)
		case len(chain) >= blob.MaxChain:
			return nil, farm.Errorf(farm.CodeNoParent,
				"%s has a layer chain of %d layers, which is the maximum: push the complete disk", f.Name,
				len(chain))
		}
		out[i] = chain
	}
	return out, nil
}

// chainOf returns the chain whose content a file of a push names; nil when not all of it is stored. No version
// needs to reference it: a disk whose version was reverted is found as long as its layers are stored or in the
// trash.
func (r *Registry) chainOf(ctx context.Context, snap *snapshot, id string, f api.PushFile, on []string) []layout.Layer {
	var above []layout.Layer // layers that no version has, base first
	var indexes int64
	for tip := f.Root; tip != ""; {
		if chain := snap.chainTo(id, tip); chain != nil && f.Kind == api.FileDisk {
			above = slices.Concat(chain, above)
			break
		}
		if !r.canBuildOn(on, tip) {
			return nil
		}
		l, parent, ok := r.findUnreferenced(ctx, tip, f, len(above) == 0)
		if indexes += l.IndexLength; !ok || len(above) == blob.MaxChain || indexes > blob.MaxIndexes {
			return nil
		}
		above, tip = slices.Insert(above, 0, l), parent
	}
	if len(above) > blob.MaxChain || indexBytes(above) > blob.MaxIndexes || slices.ContainsFunc(above, r.unusable) {
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
	if err != nil || !r.usable(root) && (r.holds(root) || !r.restore(ctx, root)) {
		return l, "", false
	}
	x, release, err := r.storedIndex(ctx, root)
	if err != nil {
		return l, "", false
	}
	defer release()
	own := f
	own.Parent = parentText(x)
	if !last {
		own.Size = x.Size()
	}
	return layerOf(x), own.Parent, fits(x, own) == nil
}

// unusable reports whether a layer is missing or damaged.
func (r *Registry) unusable(l layout.Layer) bool {
	root, err := blob.ParseDigest(l.Root)
	return err != nil || !r.usable(root)
}

// tipsOf returns the names of all content that the disks of a template are or were.
func tipsOf(t *layout.Template) map[string]bool {
	out := map[string]bool{}
	for i := range t.Versions {
		for _, f := range t.Versions[i].Files {
			for _, l := range f.Layers {
				if f.Kind == layout.Disk {
					out[l.Name()] = true
				}
			}
		}
	}
	return out
}

func noParent(f api.PushFile) error {
	return farm.Errorf(farm.CodeNoParent,
		"Parent layer %s of %s not found in the registry: push the complete disk", cmp.Or(f.Parent, f.Root),
		f.Name)
}

// pinChains pins the parent layers of the files of a session. It fails when one of them is missing or damaged.
func (r *Registry) pinChains(ctx context.Context, s *session) error {
	for _, u := range s.uploads {
		for _, l := range u.chain {
			root, err := blob.ParseDigest(l.Root)
			if err != nil || !r.pinStored(ctx, s, root) {
				return noParent(u.spec)
			}
		}
	}
	return nil
}
