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
	// maxDepth is the number of layers from which on a chain is squashed.
	maxDepth = 16
	// leastLive is the minimum share of a chain's stored bytes, in percent, that is not overwritten.
	leastLive = 60
	// consolidateRate is the maximum number of bytes a second that a squash stores.
	consolidateRate = 50 * mib
	// consolidatePrefix begins the names of its uploads: a start removes them.
	consolidatePrefix = "merge"
)

// runSquash squashes long chains until ctx ends.
func (r *Registry) runSquash(ctx context.Context) {
	c := newSquasher(r)
	for sleep(ctx, r.o.SquashEvery) == nil {
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("squashing a layer chain failed", "error", err)
		}
	}
}

// Squash squashes all chains that are too long or have too much overwritten data, and returns how many it
// squashed. Run calls it automatically.
func (r *Registry) Squash(ctx context.Context) (int, error) {
	c := newSquasher(r)
	err := c.round(ctx)
	return c.done, err
}

// squasher checks the newest versions repeatedly. One goroutine uses it.
type squasher struct {
	r    *Registry
	fine map[string]bool // tips of chains that were checked and need nothing
	done int

	indexes rateLimiter // of reading indexes: after a start, every chain is checked
}

func newSquasher(r *Registry) *squasher {
	return &squasher{r: r, fine: map[string]bool{}, indexes: rateLimiter{rate: consolidateRate, busy: r.busy}}
}

// round checks the newest version of every template: the next push rests on it.
func (c *squasher) round(ctx context.Context) error {
	seen := map[string]bool{}
	var errs []error
	for _, e := range c.r.snap.Load().order {
		if len(e.t.Versions) == 0 {
			continue
		}
		for _, f := range e.t.Versions[len(e.t.Versions)-1].Files {
			if f.Kind != layout.Disk || len(f.Layers) < 2 || context.Cause(ctx) != nil {
				continue
			}
			seen[f.Tip()] = true
			errs = append(errs, c.chain(ctx, e.t.ID, f.Layers))
		}
	}
	for tip := range c.fine {
		if !seen[tip] {
			delete(c.fine, tip)
		}
	}
	return errors.Join(errs...)
}

// chain squashes one chain if that is due.
func (c *squasher) chain(ctx context.Context, id string, layers []layout.Layer) error {
	tip := layers[len(layers)-1].Name()
	if c.fine[tip] {
		return nil
	}
	release, ok := c.r.pinLayers(layers)
	if !ok {
		return nil // damaged, or removed with its version
	}
	defer release()
	for _, l := range layers {
		if err := c.indexes.wait(ctx, int(l.IndexLength)); err != nil {
			return err
		}
	}
	open, err := c.r.openChain(ctx, layers)
	if err != nil {
		return err
	}
	defer open.close()
	due, live, err := open.due()
	if err != nil {
		return err
	}
	if !due || !c.r.hasSpace(ctx, live) {
		c.fine[tip] = !due
		return nil
	}
	if err := c.r.squashChain(ctx, id, layers, open); err != nil {
		c.fine[tip] = true // not repeatedly: a restart or the next push tries once more
		return fmt.Errorf("squash layers of template %s: %w", id, err)
	}
	c.done++
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
		root, err := blob.ParseDigest(l.Root)
		if err != nil || r.held[root] == nil || r.bad[root] != "" {
			r.mu.Unlock()
			release()
			return nil, false
		}
		r.pins[root]++
		pinned = append(pinned, root)
	}
	r.mu.Unlock()
	return release, true
}

func (r *Registry) unpinLocked(root blob.Digest) {
	if r.pins[root]--; r.pins[root] == 0 {
		delete(r.pins, root)
	}
}

// hasSpace reports whether n more bytes fit on the disk in addition to the reservations of pushes.
func (r *Registry) hasSpace(ctx context.Context, n int64) bool {
	free, _, err := r.store.Space(ctx)
	return err == nil && free-r.reserved()-n > slack && !r.strained.Load()
}

// openedChain is a chain of layers with their files open.
type openedChain struct {
	files   []blob.File
	indexes []*blob.Index
	stored  int64 // bytes of all frames
	chain   *blob.Chain
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
		root, err := blob.ParseDigest(l.Root)
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
		o.stored += layer.Index().DataBytes()
	}
	o.chain, err = blob.OpenChain(layers...)
	return o, err
}

func (o *openedChain) close() {
	for _, f := range o.files {
		_ = f.Close()
	}
}

// due reports whether the chain should be squashed, and how many of its stored bytes are not overwritten.
func (o *openedChain) due() (bool, int64, error) {
	seen, err := blob.LiveFrameBytes(o.indexes)
	if err != nil {
		return false, 0, err
	}
	return len(o.indexes) > maxDepth || seen*100 < o.stored*leastLive, seen, nil
}

// squashChain squashes a chain into one layer and swaps it into every version of the template whose disk begins
// with that chain. The next start removes what a crash leaves before the swap, or it is collected.
func (r *Registry) squashChain(ctx context.Context, id string, layers []layout.Layer, open *openedChain) (err error) {
	u := blob.Upload{Session: consolidatePrefix + newSessionID()}
	defer func() {
		err = errors.Join(err, r.store.Drop(context.WithoutCancel(ctx), u.Session),
			r.dir.RemoveAll("consolidate", path.Join(layout.UploadDir, u.Session)))
	}()
	p := &rateLimiter{rate: consolidateRate, busy: r.busy}
	o := blob.EncodeOptions{Kind: blob.KindDisk, Size: open.chain.Size(), Workers: 1, StandsFor: open.chain.ChainID()}
	r.dir.Step("consolidate.encode")
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
	root := x.Root()
	r.mu.Lock()
	r.pins[root]++ // until the template names it
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unpinLocked(root)
	}()
	if err := r.place(ctx, u, x); err != nil {
		return err
	}
	n, err := r.swapChain(id, layers, layerOf(x))
	if err == nil && n > 0 {
		r.log.Info("layers squashed", "template", id, "layers", len(layers), "bytes", x.FileSize(), "versions", n)
	}
	return err
}

// swapChain replaces a chain by its squashed layer in all versions of a template in one write. It returns the
// number of changed versions.
func (r *Registry) swapChain(id string, old []layout.Layer, layer layout.Layer) (int, error) {
	r.write.Lock()
	defer r.write.Unlock()
	e, err := r.lookup(id)
	if err != nil {
		return 0, nil // deleted since then
	}
	next, n := successor(e.t), 0
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
	r.dir.Step("consolidate.swap")
	if err := r.save(next); err != nil {
		return 0, err
	}
	if err := r.dir.Prune(next); err != nil {
		r.log.Warn("writing the text files of versions failed", "template", id, "error", err)
	}
	return n, nil
}

// isMerge reports whether an upload belongs to a squash.
func isMerge(session string) bool { return strings.HasPrefix(session, consolidatePrefix) }
