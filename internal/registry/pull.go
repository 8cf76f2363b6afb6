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

// defaultCompactPullsAfter is the default of Options.CompactPullsAfter.
const defaultCompactPullsAfter = 4096

// Manifest returns everything that is needed to build a version and keeps its layers for Options.Lease. It
// counts as a pull. The caller decides where the layers are served.
func (r *Registry) Manifest(_ context.Context, ref VersionRef) (api.PullManifest, error) {
	return withVersion(r, ref, func(e *templateEntry, v *layout.Version) (api.PullManifest, error) {
		if err := r.leaseLayers(e, v); err != nil {
			return api.PullManifest{}, err
		}
		m, err := r.manifest(e, v)
		if err == nil {
			r.recordPull(e, v)
		}
		return m, err
	})
}

// PeekManifest returns the same as Manifest, but does not count as a pull, so its layers may be removed.
func (r *Registry) PeekManifest(_ context.Context, ref VersionRef) (api.PullManifest, error) {
	return withVersion(r, ref, r.manifest)
}

func (r *Registry) manifest(e *templateEntry, v *layout.Version) (api.PullManifest, error) {
	m := api.PullManifest{
		ID: e.template.ID, Name: e.template.Name, Arch: e.template.Arch, Gen: e.template.Gen, ContentID: v.ContentID,
		Version: e.apiVersion(v),
		Lease:   int64(r.opts.LayerLease / time.Second), Files: make([]api.PullFile, 0, len(v.Files)),
	}
	if v.Arch != "" {
		m.Arch = v.Arch
	}
	var err error
	if m.Config, err = r.dir.Config(e.template.ID, v); err != nil {
		return m, unreadableVersion(e, v, err)
	}
	if m.NVRAM, err = r.dir.NVRAM(e.template.ID, v); err != nil {
		return m, unreadableVersion(e, v, err)
	}
	traces := r.bootTraces(e, v)
	for _, f := range v.Files {
		file := api.PullFile{
			Name: f.Name, Kind: f.Kind, Format: f.Format, Size: f.Size, Trace: agreedTrace(traces, f),
		}
		for _, l := range f.Layers {
			file.Layers = append(file.Layers,
				api.PullLayer{
					Root: l.Digest, Tip: l.Squashes, Size: l.Size, IndexOffset: l.IndexOffset,
					IndexLength: l.IndexLength,
				})
		}
		m.Files = append(m.Files, file)
	}
	return m, nil
}

// leaseLayers leases the layers of a version, which keeps them from collection for a while. It fails when one of
// them cannot be pulled.
func (r *Registry) leaseLayers(e *templateEntry, v *layout.Version) error {
	for root := range layersOfVersion(v) {
		if err := r.leaseLayer(root); err != nil {
			return farm.Refused("Version %d (tag %s) of template %s is damaged: %v; push it again or revert it, "+
				"\"buildyard registry check\" at the registry says more", v.Number, v.Tag, e.template.Name, err)
		}
	}
	return nil
}

// leaseLayer keeps a layer from collection for a while. It fails when the layer is missing or damaged.
func (r *Registry) leaseLayer(root blob.Digest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch problem := r.badLayers[root]; {
	case problem != "":
		return farm.Refused("layer file %s %s", root, problem)
	case r.storedLayers[root] == nil:
		return farm.NotFound()
	}
	r.leasedUntil[root] = r.opts.Now().Add(r.opts.LayerLease)
	return nil
}

// recordPull records the time of a pull. A failure to write it loses only that time.
func (r *Registry) recordPull(e *templateEntry, v *layout.Version) {
	r.metrics.pulls.Inc()
	now := r.opts.Now().Unix()
	p := e.pulls
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newestAt.Store(max(p.newestAt.Load(), now))
	if p.lastByContent[v.ContentID] == now {
		return
	}
	p.lastByContent[v.ContentID] = now
	var err error
	if p.logLines++; p.logLines < r.opts.CompactPullsAfter+len(e.template.Versions) {
		err = r.dir.AppendPull(e.template.ID, v.ContentID, now)
	} else {
		p.dropRemoved(e.template, v.ContentID)
		err = r.dir.CompactPulls(e.template.ID, p.lastByContent)
		p.logLines = len(p.lastByContent)
	}
	if err != nil {
		r.log.Warn("recording the time of a pull failed", "template", e.template.ID, "error", err)
	}
}

// dropRemoved drops the times of versions that no longer exist. The newest pull stays, as the template's time.
// The caller holds mu.
func (p *pullTimes) dropRemoved(t *layout.Template, newest string) {
	there := map[string]bool{newest: true}
	for i := range t.Versions {
		there[t.Versions[i].ContentID] = true
	}
	maps.DeleteFunc(p.lastByContent, func(content string, _ int64) bool { return !there[content] })
}

// CountSent counts bytes of layers that were sent.
func (r *Registry) CountSent(bytes int64) { r.metrics.sentBytes.Add(bytes) }

// OpenBlob opens a layer file for a range request, which makes the layer stay. The caller closes it.
func (r *Registry) OpenBlob(ctx context.Context, root string) (blob.File, error) {
	parsed, err := blob.ParseDigest(root)
	if err != nil {
		return nil, farm.NotFound()
	}
	if err := r.leaseLayer(parsed); err != nil {
		return nil, err
	}
	r.recordTraffic()
	f, err := r.store.Open(ctx, parsed)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, farm.NotFound()
	}
	return f, err
}
