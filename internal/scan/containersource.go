package scan

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/container"
)

// layersFormat is the Format of the merged layers of a container image.
const layersFormat = "layers"

// ContainerImage is the image of a file that was scanned.
type ContainerImage struct {
	Ref      string // "" without a name
	Digest   string
	Platform string
}

// catalogContainer catalogs the merged layers of a container image.
func (i *Inventory) catalogContainer(ctx context.Context, o Options) error {
	return i.catalogOpened(ctx, o, func(ctx context.Context, i *Inventory) ([]volume, io.Closer, error) {
		img, err := container.Open(i.Source.Target, o.Platform)
		if err != nil {
			return nil, nil, err
		}
		v, tree, err := i.mergeLayers(ctx, img, o)
		if err != nil {
			return nil, nil, errors.Join(err, img.Close())
		}
		return []volume{v}, layersCloser{tree, img}, nil
	})
}

// layersCloser closes the layers of an image, then the image.
type layersCloser struct {
	tree *container.Tree
	img  *container.Image
}

func (c layersCloser) Close() error {
	c.tree.Close()
	return c.img.Close()
}

// mergeLayers returns the merged layers of an image, and records what cannot be read.
func (i *Inventory) mergeLayers(
	ctx context.Context, img *container.Image, o Options,
) (volume, *container.Tree, error) {
	i.Container = ContainerImage{Ref: img.Ref, Digest: img.Digest, Platform: img.Platform}
	if img.Others > 0 {
		i.Notes = append(i.Notes, fmt.Sprintf("of %d images in the file, %s was scanned", img.Others+1, img))
	}
	v := volume{Volume: Volume{Name: i.Source.Target, Format: layersFormat}}
	selection := catalog.NewSelection(v.catalogOptions(o).Extractors)
	co := container.Options{Wants: selection.Wants, Probe: selection.Probe}
	if o.Progress != nil {
		co.Progress = func(entries int) { o.Progress(v.Name, entries, 0) }
	}
	tree, err := img.Tree(ctx, co)
	if err != nil {
		return v, nil, err
	}
	v.open = opened(tree)
	for _, s := range tree.Skipped {
		i.Skipped = append(i.Skipped, Skipped{Name: s.Name, Reason: s.Reason, MayHavePackages: true})
	}
	for _, p := range tree.Problems {
		i.Warnings = append(i.Warnings, catalog.Warning{Path: p.Path, Message: p.Message})
	}
	i.Unreadable += tree.ProblemCount
	return v, tree, nil
}
