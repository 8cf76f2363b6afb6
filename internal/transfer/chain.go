package transfer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
)

// MaxOverlays is the maximum number of overlays below another one: each one makes reads slower.
const MaxOverlays = 8

// tipOf names the content of a chain up to a layer.
func tipOf(l api.PullLayer) string {
	if l.Tip != "" {
		return l.Tip
	}
	return l.Root
}

// topOf is the last layer of a file.
func topOf(f api.PullFile) api.PullLayer { return f.Layers[len(f.Layers)-1] }

// checkLayers refuses chains that cannot be built.
func checkLayers(f api.PullFile) error {
	if len(f.Layers) == 0 || len(f.Layers) > blob.MaxChain {
		return farm.Refused("%s has %d layers: this program supports 1 to %d",
			f.Name, len(f.Layers), blob.MaxChain)
	}
	var indexes int64
	for _, l := range f.Layers {
		if len(l.URLs) == 0 {
			return fmt.Errorf("the registry returned no URL for a layer of %s", f.Name)
		}
		if l.IndexLength < 1 || l.IndexLength > blob.MaxIndex || l.IndexOffset < 0 {
			return fmt.Errorf(
				"the registry returned an invalid position of the frame index of a layer of %s: %d bytes at %d", f.Name,
				l.IndexLength, l.IndexOffset)
		}
		indexes += l.IndexLength
	}
	if indexes > blob.MaxIndexes {
		return farm.Refused(
			"%s is stored in %d layers whose indexes have %s together: want at most %s; push it as a whole, "+
				"or try again when the registry has put the layers together", f.Name, len(f.Layers),
			bytesize.Format(indexes),
			bytesize.Format(blob.MaxIndexes))
	}
	return nil
}

// chain fetches the indexes of a file's layers and checks them against the manifest.
func (p *pull) chain(ctx context.Context, f api.PullFile) ([]*blob.Index, error) {
	chain := make([]*blob.Index, len(f.Layers))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(pullParallel)
	for i, l := range f.Layers {
		group.Go(func() error {
			x, err := p.c.index(ctx, l)
			if err != nil {
				return fmt.Errorf("read frame index of %s: %w", f.Name, err)
			}
			if x.ChainID().String() != tipOf(l) {
				return fmt.Errorf("frame index of %s does not match the manifest", f.Name)
			}
			p.moved.Add(l.IndexLength)
			chain[i] = x
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if chain[len(chain)-1].Size() != f.Size {
		return nil, fmt.Errorf("frame index of %s does not match the manifest", f.Name)
	}
	return chain, nil
}

// index fetches and verifies the index of a layer.
func (c *Client) index(ctx context.Context, l api.PullLayer) (*blob.Index, error) {
	want, err := blob.ParseDigest(l.Root)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, l.IndexLength)
	got, attempt := 0, 0
	err = c.retryProgress(ctx, "index of "+l.Root, func() (bool, error) {
		address, before := l.URLs[attempt%len(l.URLs)], got
		attempt++
		err := c.ranged(ctx, address, l.IndexOffset+int64(got), l.IndexLength-int64(got), func(body io.Reader) error {
			n, err := io.ReadFull(body, raw[got:])
			if got += n; err != nil {
				return fmt.Errorf("%w: %w", errTransient, err)
			}
			if blob.Digest(sha256.Sum256(raw)) != want {
				got = 0
				return fmt.Errorf("%w: frame index does not match its digest", errTransient)
			}
			return nil
		})
		return got > before, err
	})
	if err != nil {
		return nil, err
	}
	return blob.ParseIndex(raw)
}

// localChain is the local content that the first layers of a file describe.
type localChain struct {
	layers int // 0: no such content is here
	tip    string
	disk   Disk
}

// nearest finds the highest layer below the top whose content is local.
func (p *pull) nearest(f api.PullFile, chain []*blob.Index) localChain {
	for n := len(f.Layers) - 1; n > 0; n-- {
		tip := tipOf(f.Layers[n-1])
		if d, ok := p.o.Have[tip]; ok && usable(d, chain[n-1].Size()) {
			return localChain{layers: n, tip: tip, disk: d}
		}
	}
	return localChain{}
}

// usable reports whether a disk can be built upon.
func usable(d Disk, size int64) bool { return len(d.Overlays) < MaxOverlays && present(d, size) }

// present reports whether the files of a disk exist, without reading them: they were verified when they were
// pulled.
func present(d Disk, size int64) bool {
	for _, path := range d.files() {
		st, err := os.Lstat(path)
		if err != nil || !st.Mode().IsRegular() || d.raw() && st.Size() != size {
			return false
		}
	}
	return true
}
