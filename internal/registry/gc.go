package registry

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// maxTime is later than all times in the trash, including those stamped while the clock was wrong.
var maxTime = time.Unix(0, math.MaxInt64)

// GCOptions configures a requested garbage collection.
type GCOptions struct {
	DryRun     bool // only report what would be done
	EmptyTrash bool // empty the trash, whatever its age
}

// GC collects garbage immediately, without the grace period. Pushes and pulls continue, and the layers that
// they may need stay.
func (r *Registry) GC(ctx context.Context, o GCOptions) (api.RegistryGC, error) {
	out := api.RegistryGC{DryRun: o.DryRun}
	now := r.opts.Now()
	var errs []error
	for root, l := range r.listUnreferenced(now) {
		if l.leased {
			out.Waiting++
			out.WaitBytes += l.size
			continue
		}
		out.Layers++
		out.Bytes += l.size
		if !o.DryRun {
			errs = append(errs, r.trashLayer(ctx, root, now))
		}
	}
	before := now.Add(-r.opts.TrashRetention)
	if o.EmptyTrash {
		before = maxTime
	}
	old, err := r.trashSizesBefore(before)
	errs = append(errs, err)
	for _, size := range old {
		out.Purged++
		out.PurgedSize += size
	}
	if o.DryRun && o.EmptyTrash {
		out.Purged, out.PurgedSize = out.Purged+out.Layers, out.PurgedSize+out.Bytes
	}
	if !o.DryRun {
		errs = append(errs, r.removeStaleScans(), r.purgeTrash(ctx, before))
	}
	out.Trash = r.measureTrash()
	return out, errors.Join(errs...)
}

// unreferencedLayer is a layer that no version and no push needs.
type unreferencedLayer struct {
	size   int64
	leased bool // a pull may need it
}

func (r *Registry) listUnreferenced(now time.Time) map[blob.Digest]unreferencedLayer {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[blob.Digest]unreferencedLayer{}
	for root, l := range r.storedLayers {
		if r.layerRefs[root] == 0 && r.layerPins[root] == 0 {
			until, leased := r.leasedUntil[root]
			if leased && now.After(until) {
				delete(r.leasedUntil, root)
				leased = false
			}
			out[root] = unreferencedLayer{size: l.size, leased: leased}
		}
	}
	return out
}

// trashSizesBefore returns the sizes of what was deleted before a time.
func (r *Registry) trashSizesBefore(before time.Time) ([]int64, error) {
	entries, err := r.dir.TrashEntries()
	if err != nil {
		return nil, err
	}
	var sizes []int64
	for _, e := range entries {
		if e.Stamp < before.UnixNano() {
			sizes = append(sizes, r.dir.SizeOnDisk(e.Path()))
		}
	}
	if remote, ok := r.store.(trashSizer); ok {
		sizes = append(sizes, remote.TrashSizes(before)...)
	}
	return sizes, nil
}

// purgeTrash removes what was deleted before a time permanently. Layers that versions need are restored before: a
// write whose response was lost may have published a version after its push ended.
func (r *Registry) purgeTrash(ctx context.Context, before time.Time) error {
	for _, root := range r.missingLayers() {
		if r.restoreLayer(ctx, root) {
			r.log.Info("layer that a version needs restored from the trash", "layer", root.String())
		}
	}
	_, err := r.store.PurgeTrash(ctx, before)
	_, dirErr := r.dir.PurgeTrash(before.UnixNano(),
		func(name string) bool { return !strings.HasSuffix(name, layout.LayerSuffix) })
	return errors.Join(err, dirErr)
}

// measureTrash measures the trash and stores its size until the next measurement.
func (r *Registry) measureTrash() int64 {
	size := r.dir.SizeOnDisk(layout.TrashDir)
	if remote, ok := r.store.(trashSizer); ok {
		for _, n := range remote.TrashSizes(maxTime) {
			size += n
		}
	}
	r.trashBytes.Store(size)
	return size
}

// Stats returns statistics of the storage.
func (r *Registry) Stats(ctx context.Context) (api.RegistryStats, error) {
	free, total, err := r.store.Space(ctx)
	if err != nil {
		return api.RegistryStats{}, err
	}
	snap := r.snapshot.Load()
	out := api.RegistryStats{
		Templates: len(snap.sorted), Damaged: len(r.listDamage()), Free: free, Total: total,
		Uploads: r.dir.SizeOnDisk(layout.UploadDir), Trash: r.measureTrash(),
		Aside:  r.dir.SizeOnDisk(layout.QuarantineDir),
		Others: r.foreignFileBytes(), Reserved: r.reservedBytes(), Scrub: r.scrubStatus(),
	}
	disks, states := sumLayers(snap, &out)
	for _, s := range r.allSessions() {
		if s.committedResult() == nil {
			out.Sessions++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out.Layers = len(r.storedLayers)
	for root, l := range r.storedLayers {
		switch {
		case disks[root]:
			out.Disks += l.size
		case states[root]:
			out.States += l.size
		default:
			out.Loose += l.size
		}
	}
	out.Shared = out.Pulled - out.Disks - out.States
	out.Reclaimable = out.Loose + out.Trash
	return out, nil
}

// sumLayers counts versions, their sizes and the longest chain, and returns the layers of disks and states.
func sumLayers(snap *snapshot, out *api.RegistryStats) (disks, states map[blob.Digest]bool) {
	kinds := map[string]map[blob.Digest]bool{layout.KindDisk: {}, layout.KindState: {}}
	for _, e := range snap.sorted {
		out.Versions += len(e.template.Versions)
		for i := range e.template.Versions {
			v := &e.template.Versions[i]
			out.Pulled += v.Size()
			for _, f := range v.Files {
				out.Longest = max(out.Longest, len(f.Layers))
				for _, l := range f.Layers {
					if root, err := blob.ParseDigest(l.Digest); err == nil {
						kinds[f.Kind][root] = true
					}
				}
			}
		}
	}
	return kinds[layout.KindDisk], kinds[layout.KindState]
}

// foreignFileBytes sums the sizes of files among the layers that are not the registry's.
func (r *Registry) foreignFileBytes() int64 {
	all := r.dir.SizeOnDisk(layout.ImagesDir) + r.dir.SizeOnDisk(layout.StateFileDir)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.storedLayers {
		all -= l.size
	}
	return max(0, all)
}
