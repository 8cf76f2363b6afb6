package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

const (
	// maxChainLength is the number of layers from which on a chain is squashed.
	maxChainLength = 16
	// minLivePercent is the minimum share of a chain's stored bytes, in percent, that is not overwritten.
	minLivePercent = 60
	// squashBytesPerSecond is the maximum number of bytes a second that a squash stores.
	squashBytesPerSecond = 50 * mib
	// squashUploadPrefix begins the names of its uploads: a start removes them.
	squashUploadPrefix = "merge"
)

// runSquash squashes long chains until ctx ends.
func (r *Registry) runSquash(ctx context.Context) {
	c := newSquasher(r)
	for sleep(ctx, r.opts.SquashInterval) == nil {
		if err := c.squashRound(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("squashing a layer chain failed", "error", err)
		}
	}
}

// SquashChains squashes all chains that are too long or have too much overwritten data, and returns how many it
// squashed. Run calls it automatically.
func (r *Registry) SquashChains(ctx context.Context) (int, error) {
	c := newSquasher(r)
	err := c.squashRound(ctx)
	return c.squashed, err
}

// squasher checks the newest versions repeatedly. One goroutine uses it.
type squasher struct {
	registry      *Registry
	checkedChains map[string]bool // tips of chains that were checked and need nothing
	squashed      int

	readLimiter rateLimiter // of reading indexes: after a start, every chain is checked
}

func newSquasher(r *Registry) *squasher {
	return &squasher{
		registry: r, checkedChains: map[string]bool{},
		readLimiter: rateLimiter{rate: squashBytesPerSecond, busy: r.hasTraffic},
	}
}

// squashRound checks the newest version of every template: the next push rests on it.
func (c *squasher) squashRound(ctx context.Context) error {
	seen := map[string]bool{}
	var errs []error
	for _, e := range c.registry.snapshot.Load().sorted {
		if len(e.template.Versions) == 0 {
			continue
		}
		for _, f := range e.template.Versions[len(e.template.Versions)-1].Files {
			if f.Kind != layout.KindDisk || len(f.Layers) < 2 || context.Cause(ctx) != nil {
				continue
			}
			seen[f.ChainID()] = true
			errs = append(errs, c.squashIfDue(ctx, e.template.ID, f.Layers))
		}
	}
	for tip := range c.checkedChains {
		if !seen[tip] {
			delete(c.checkedChains, tip)
		}
	}
	return errors.Join(errs...)
}

// squashIfDue squashes one chain if that is due.
func (c *squasher) squashIfDue(ctx context.Context, id string, layers []layout.Layer) error {
	tip := layers[len(layers)-1].ChainID()
	if c.checkedChains[tip] {
		return nil
	}
	release, ok := c.registry.pinLayers(layers)
	if !ok {
		return nil // damaged, or removed with its version
	}
	defer release()
	for _, l := range layers {
		if err := c.readLimiter.wait(ctx, int(l.IndexLength)); err != nil {
			return err
		}
	}
	open, err := c.registry.openChain(ctx, layers)
	if err != nil {
		return err
	}
	defer open.close()
	due, live, err := open.isDue()
	if err != nil {
		return err
	}
	if !due || !c.registry.hasSpace(ctx, live) {
		c.checkedChains[tip] = !due
		return nil
	}
	if err := c.registry.squashChain(ctx, id, layers, open); err != nil {
		c.checkedChains[tip] = true // not repeatedly: a restart or the next push tries once more
		return fmt.Errorf("squash layers of template %s: %w", id, err)
	}
	c.squashed++
	return nil
}

// pinLayers keeps layers from collection until release is called; false when one is missing or damaged.
func (r *Registry) pinLayers(layers []layout.Layer) (release func(), ok bool) {
	var pinned []blob.Digest
	release = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, root := range pinned {
			r.unpinLocked(root)
		}
	}
	r.mu.Lock()
	for _, l := range layers {
		root, err := blob.ParseDigest(l.Digest)
		if err != nil || r.storedLayers[root] == nil || r.badLayers[root] != "" {
			r.mu.Unlock()
			release()
			return nil, false
		}
		r.layerPins[root]++
		pinned = append(pinned, root)
	}
	r.mu.Unlock()
	return release, true
}

func (r *Registry) unpinLocked(root blob.Digest) {
	if r.layerPins[root]--; r.layerPins[root] == 0 {
		delete(r.layerPins, root)
	}
}

// hasSpace reports whether n more bytes fit on the disk in addition to the reservations of pushes.
func (r *Registry) hasSpace(ctx context.Context, n int64) bool {
	free, _, err := r.store.Space(ctx)
	return err == nil && free-r.reservedBytes()-n > maxRequiredFree && !r.reserveReleased.Load()
}

// openedChain is a chain of layers with their files open.
type openedChain struct {
	files       []blob.File
	indexes     []*blob.Index
	storedBytes int64 // bytes of all frames
	chain       *blob.Chain
}

func (r *Registry) openChain(ctx context.Context, list []layout.Layer) (_ *openedChain, err error) {
	o := &openedChain{}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	var layers []*blob.Layer
	for _, l := range list {
		root, err := blob.ParseDigest(l.Digest)
		if err != nil {
			return nil, err
		}
		f, err := r.store.Open(ctx, root)
		if err != nil {
			return nil, err
		}
		o.files = append(o.files, f)
		layer, err := blob.OpenLayer(f, l.Size, root)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
		o.indexes = append(o.indexes, layer.Index())
		o.storedBytes += layer.Index().StoredBytes()
	}
	o.chain, err = blob.OpenChain(layers...)
	return o, err
}

func (o *openedChain) close() {
	for _, f := range o.files {
		_ = f.Close()
	}
}

// isDue reports whether the chain should be squashed, and how many of its stored bytes are not overwritten.
func (o *openedChain) isDue() (bool, int64, error) {
	seen, err := blob.LiveFrameBytes(o.indexes)
	if err != nil {
		return false, 0, err
	}
	return len(o.indexes) > maxChainLength || seen*100 < o.storedBytes*minLivePercent, seen, nil
}

// squashChain squashes a chain into one layer and swaps it into every version of the template whose disk begins
// with that chain. The next start removes what a crash leaves before the swap, or it is collected.
func (r *Registry) squashChain(ctx context.Context, id string, layers []layout.Layer, open *openedChain) (err error) {
	u := blob.Upload{PushSession: squashUploadPrefix + newSessionID()}
	defer func() {
		err = errors.Join(err, r.store.DropUploads(context.WithoutCancel(ctx), u.PushSession),
			r.dir.RemoveAll("consolidate", path.Join(layout.UploadDir, u.PushSession)))
	}()
	p := &rateLimiter{rate: squashBytesPerSecond, busy: r.hasTraffic}
	o := blob.EncodeOptions{Kind: blob.KindDisk, Size: open.chain.Size(), Workers: 1, Squashes: open.chain.ChainID()}
	o.DecodedSums = r.opts.PeerSums
	r.dir.AnnounceStep("consolidate.encode")
	x, err := blob.Encode(ctx, open.chain, o, func(f blob.Frame, _ int64, stored []byte) error {
		if err := p.wait(ctx, len(stored)); err != nil {
			return err
		}
		_, err := r.store.WritePart(ctx, u, f.Offset, bytes.NewReader(stored))
		return err
	})
	if err != nil {
		return err
	}
	root := x.Digest()
	r.mu.Lock()
	r.layerPins[root]++ // until the template names it
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unpinLocked(root)
	}()
	if err := r.storeUpload(ctx, u, x); err != nil {
		return err
	}
	n, err := r.swapChain(id, layers, layerEntryOf(x))
	if err == nil && n > 0 {
		r.log.Info("layers squashed", "template", id, "layers", len(layers), "bytes", x.FileSize(), "versions", n)
	}
	return err
}

// swapChain replaces a chain by its squashed layer in all versions of a template in one write. It returns the
// number of changed versions.
func (r *Registry) swapChain(id string, old []layout.Layer, layer layout.Layer) (int, error) {
	r.metadataMu.Lock()
	defer r.metadataMu.Unlock()
	e, err := r.findTemplate(id)
	if err != nil {
		return 0, nil // deleted since then
	}
	next, n := nextGeneration(e.template), 0
	for i := range next.Versions {
		v := &next.Versions[i]
		v.Files = slices.Clone(v.Files)
		changed := false
		for j := range v.Files {
			f := &v.Files[j]
			if len(f.Layers) >= len(old) && slices.Equal(f.Layers[:len(old)], old) {
				f.Layers = append([]layout.Layer{layer}, f.Layers[len(old):]...)
				changed = true
			}
		}
		if changed {
			n++
		}
	}
	if n == 0 {
		return 0, nil // reverted since then
	}
	r.dir.AnnounceStep("consolidate.swap")
	if err := r.saveTemplate(next); err != nil {
		return 0, err
	}
	if err := r.dir.PruneTemplate(next); err != nil {
		r.log.Warn("writing the text files of versions failed", "template", id, "error", err)
	}
	return n, nil
}

// isSquashUpload reports whether an upload belongs to a squash.
func isSquashUpload(session string) bool { return strings.HasPrefix(session, squashUploadPrefix) }
