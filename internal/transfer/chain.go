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
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
)

// MaxOverlays is the maximum number of overlays below another one: each one makes reads slower.
const MaxOverlays = 8

// chainIDOf names the content of a chain up to a layer.
func chainIDOf(l api.PullLayer) string {
	if l.Tip != "" {
		return l.Tip
	}
	return l.Root
}

// topLayer is the last layer of a file.
func topLayer(f api.PullFile) api.PullLayer { return f.Layers[len(f.Layers)-1] }

// checkPullLayers refuses chains that cannot be built.
func checkPullLayers(f api.PullFile) error {
	if len(f.Layers) == 0 || len(f.Layers) > blob.MaxChainLayers {
		return farm.Refused("%s has %d layers: this program supports 1 to %d",
			f.Name, len(f.Layers), blob.MaxChainLayers)
	}
	var indexes int64
	for _, l := range f.Layers {
		if len(l.URLs) == 0 {
			return fmt.Errorf("the registry returned no URL for a layer of %s", f.Name)
		}
		if l.IndexLength < 1 || l.IndexLength > blob.MaxIndexSize || l.IndexOffset < 0 {
			return fmt.Errorf(
				"the registry returned an invalid position of the frame index of a layer of %s: %d bytes at %d", f.Name,
				l.IndexLength, l.IndexOffset)
		}
		indexes += l.IndexLength
	}
	if indexes > blob.MaxChainIndexSize {
		return farm.Refused(
			"%s is stored in %d layers whose indexes have %s together: want at most %s; push it as a whole, "+
				"or try again when the registry has put the layers together", f.Name, len(f.Layers),
			bytesize.Format(indexes),
			bytesize.Format(blob.MaxChainIndexSize))
	}
	return nil
}

// fetchIndexes fetches the indexes of a file's layers and checks them against the manifest.
func (p *pull) fetchIndexes(ctx context.Context, f api.PullFile) ([]*blob.Index, error) {
	chain := make([]*blob.Index, len(f.Layers))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(pullConnections)
	for i, l := range f.Layers {
		group.Go(func() error {
			x, err := p.client.fetchIndex(ctx, l)
			if err != nil {
				return fmt.Errorf("read frame index of %s: %w", f.Name, err)
			}
			if x.ChainID().String() != chainIDOf(l) {
				return fmt.Errorf("frame index of %s does not match the manifest", f.Name)
			}
			p.transferredBytes.Add(l.IndexLength)
			chain[i] = x
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if chain[len(chain)-1].ContentSize() != f.Size {
		return nil, fmt.Errorf("frame index of %s does not match the manifest", f.Name)
	}
	return chain, nil
}

// fetchIndex fetches and verifies the index of a layer.
func (c *Client) fetchIndex(ctx context.Context, l api.PullLayer) (*blob.Index, error) {
	want, err := blob.ParseDigest(l.Root)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, l.IndexLength)
	got, attempt := 0, 0
	err = c.retryWithProgress(ctx, "index of "+l.Root, func() (bool, error) {
		address, before := c.sources.choose(c, l.URLs, attempt), got
		attempt++
		err := c.getRange(ctx, address, l.IndexOffset+int64(got), l.IndexLength-int64(got), func(body io.Reader) error {
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
		return got > before, c.sources.noteFailure(c, l.URLs, address, err)
	})
	if err != nil {
		return nil, err
	}
	return blob.ParseIndex(raw)
}

// localChain is the local content that the first layers of a file describe.
type localChain struct {
	layerCount int // 0: no such content is here
	chainID    string
	disk       diskfile.Disk
}

// findLocalChain finds the highest layer below the top whose content is local.
func (p *pull) findLocalChain(f api.PullFile, chain []*blob.Index) localChain {
	for n := len(f.Layers) - 1; n > 0; n-- {
		tip := chainIDOf(f.Layers[n-1])
		if d, ok := p.opts.LocalContent[tip]; ok && canBuildOn(d, chain[n-1].ContentSize()) {
			return localChain{layerCount: n, chainID: tip, disk: d}
		}
	}
	return localChain{}
}

// canBuildOn reports whether a disk can be built upon.
func canBuildOn(d diskfile.Disk, size int64) bool {
	return len(d.Overlays) < MaxOverlays && filesExist(d, size)
}

// filesExist reports whether the files of a disk exist, without reading them: they were verified when they were
// pulled.
func filesExist(d diskfile.Disk, size int64) bool {
	for _, path := range d.Files() {
		st, err := os.Lstat(path)
		if err != nil || !st.Mode().IsRegular() || d.IsRaw() && st.Size() != size {
			return false
		}
	}
	return true
}
