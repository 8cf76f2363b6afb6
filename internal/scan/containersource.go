package scan

import (
	"context"
	"fmt"

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
	img, err := container.Open(i.Source.Target, o.Platform)
	if err != nil {
		return err
	}
	defer func() { _ = img.Close() }()
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
		return err
	}
	defer tree.Close()
	v.fs = tree
	for _, s := range tree.Skipped {
		i.Skipped = append(i.Skipped, Skipped{Name: s.Name, Reason: s.Reason, MayHavePackages: true})
	}
	for _, p := range tree.Problems {
		i.Warnings = append(i.Warnings, catalog.Warning{Path: p.Path, Message: p.Message})
	}
	i.Unreadable += tree.ProblemCount
	return i.catalogVolumes(ctx, []volume{v}, o)
}
