package registry

import (
	"cmp"
	"context"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// layerOf is the entry of a layer in a template.
func layerOf(x *blob.Index) layout.Layer {
	foot := x.Footer()
	l := layout.Layer{Root: foot.Root.String(), Size: x.FileSize(), IndexOffset: foot.IndexOffset, IndexLength: foot.IndexLength}
	if tip := x.Tip(); tip != foot.Root {
		l.Tip = tip.String()
	}
	return l
}

// chainTo gives the shortest chain of layers whose content has a name, among the disks of template id or else of
// any other; nil when there is none.
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

// chains finds what the files of a push rest on, in their order.
func (r *Registry) chains(req api.PushRequest) ([][]layout.Layer, error) {
	snap := r.snap.Load()
	out := make([][]layout.Layer, len(req.Files))
	for i, f := range req.Files {
		if f.Parent == "" {
			out[i] = snap.chainOf(req.ID, f)
			continue
		}
		chain := snap.chainTo(req.ID, f.Parent)
		switch {
		case chain == nil:
			return nil, noParent(f)
		case len(chain) >= blob.MaxChain:
			return nil, farm.Errorf(farm.CodeNoParent, "%s rests on a chain of %d layers, which is the most there can be: send the disk as a whole", f.Name, len(chain))
		}
		out[i] = chain
	}
	return out, nil
}

// chainOf gives the chain whose content a file of a push is, when its sender has named it; nil when there is none,
// or when it is one layer of that name, which needs no chain to be found.
func (s *snapshot) chainOf(id string, f api.PushFile) []layout.Layer {
	if f.Root == "" || f.Kind != api.FileDisk {
		return nil
	}
	chain := s.chainTo(id, f.Root)
	if len(chain) == 1 && chain[0].Root == f.Root {
		return nil
	}
	return chain
}

// tipsOf gives the names of all content that the disks of a template are or were.
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
	return farm.Errorf(farm.CodeNoParent, "The registry does not hold layer %s, which %s rests on: send the disk as a whole", cmp.Or(f.Parent, f.Root), f.Name)
}

// pinChains makes the layers stay that the files of a session rest on. It fails when one of them is gone or
// damaged.
func (r *Registry) pinChains(ctx context.Context, s *session) error {
	for _, u := range s.uploads {
		for _, l := range u.chain {
			root, err := blob.ParseRoot(l.Root)
			if err != nil || !r.pinHeld(ctx, s, root) {
				return noParent(u.spec)
			}
		}
	}
	return nil
}
