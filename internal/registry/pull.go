package registry

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// foldPulls is the default of Options.FoldPulls.
const foldPulls = 4096

// Manifest returns everything that is needed to build a version and keeps its layers for Options.Lease. It
// counts as a pull. The caller decides where the layers are served.
func (r *Registry) Manifest(_ context.Context, ref Ref) (api.PullManifest, error) {
	return onVersion(r, ref, func(e *entry, v *layout.Version) (api.PullManifest, error) {
		if err := r.leaseAll(e, v); err != nil {
			return api.PullManifest{}, err
		}
		m, err := r.manifest(e, v)
		if err == nil {
			r.recordPull(e, v)
		}
		return m, err
	})
}

// Look returns the same as Manifest, but does not count as a pull, so its layers may be removed.
func (r *Registry) Look(_ context.Context, ref Ref) (api.PullManifest, error) {
	return onVersion(r, ref, r.manifest)
}

func (r *Registry) manifest(e *entry, v *layout.Version) (api.PullManifest, error) {
	m := api.PullManifest{
		ID: e.t.ID, Name: e.t.Name, Arch: e.t.Arch, Gen: e.t.Gen, ContentID: v.ContentID, Version: e.version(v),
		Lease: int64(r.o.Lease / time.Second), Files: make([]api.PullFile, 0, len(v.Files)),
	}
	if v.Arch != "" {
		m.Arch = v.Arch
	}
	var err error
	if m.Config, err = r.dir.Config(e.t.ID, v); err != nil {
		return m, unreadable(e, v, err)
	}
	if m.NVRAM, err = r.dir.NVRAM(e.t.ID, v); err != nil {
		return m, unreadable(e, v, err)
	}
	for _, f := range v.Files {
		file := api.PullFile{Name: f.Name, Kind: f.Kind, Format: f.Format, Size: f.Size}
		for _, l := range f.Layers {
			file.Layers = append(file.Layers,
				api.PullLayer{
					Root: l.Root, Tip: l.Tip, Size: l.Size, IndexOffset: l.IndexOffset,
					IndexLength: l.IndexLength,
				})
		}
		m.Files = append(m.Files, file)
	}
	return m, nil
}

// leaseAll leases the layers of a version, which keeps them from collection for a while. It fails when one of
// them cannot be pulled.
func (r *Registry) leaseAll(e *entry, v *layout.Version) error {
	for root := range layersOf(v) {
		if err := r.lease(root); err != nil {
			return farm.Refused("Version %d (tag %s) of template %s is damaged: %v; push it again or revert it, "+
				"\"buildyard registry check\" at the registry says more", v.Number, v.Tag, e.t.Name, err)
		}
	}
	return nil
}

// lease keeps a layer from collection for a while. It fails when the layer is missing or damaged.
func (r *Registry) lease(root blob.Digest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch problem := r.bad[root]; {
	case problem != "":
		return farm.Refused("layer file %s %s", root, problem)
	case r.held[root] == nil:
		return farm.NotFound()
	}
	r.leases[root] = r.o.Now().Add(r.o.Lease)
	return nil
}

// recordPull records the time of a pull. A failure to write it loses only that time.
func (r *Registry) recordPull(e *entry, v *layout.Version) {
	r.metrics.pulls.Inc()
	now := r.o.Now().Unix()
	p := e.pulls
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest.Store(max(p.newest.Load(), now))
	if p.last[v.ContentID] == now {
		return
	}
	p.last[v.ContentID] = now
	var err error
	if p.lines++; p.lines < r.o.FoldPulls+len(e.t.Versions) {
		err = r.dir.AppendPull(e.t.ID, v.ContentID, now)
	} else {
		p.forget(e.t, v.ContentID)
		err = r.dir.CompactPulls(e.t.ID, p.last)
		p.lines = len(p.last)
	}
	if err != nil {
		r.log.Warn("recording the time of a pull failed", "template", e.t.ID, "error", err)
	}
}

// forget drops the times of versions that no longer exist. The newest pull stays, as the template's time.
// The caller holds mu.
func (p *pulls) forget(t *layout.Template, newest string) {
	there := map[string]bool{newest: true}
	for i := range t.Versions {
		there[t.Versions[i].ContentID] = true
	}
	maps.DeleteFunc(p.last, func(content string, _ int64) bool { return !there[content] })
}

// CountSent counts bytes of layers that were sent.
func (r *Registry) CountSent(bytes int64) { r.metrics.sent.Add(bytes) }

// OpenBlob opens a layer file for a range request, which makes the layer stay. The caller closes it.
func (r *Registry) OpenBlob(ctx context.Context, root string) (blob.File, error) {
	parsed, err := blob.ParseDigest(root)
	if err != nil {
		return nil, farm.NotFound()
	}
	if err := r.lease(parsed); err != nil {
		return nil, err
	}
	r.touchTraffic()
	f, err := r.store.Open(ctx, parsed)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, farm.NotFound()
	}
	return f, err
}
