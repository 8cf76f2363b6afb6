package scan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/disk"
)

// Options configure how a source is cataloged.
type Options struct {
	Storage      string // directory of the registry, for templates
	IgnoreSystem bool   // leave the system volume of a Mac out
	MacOS        bool   // macOS itself is a package
	Snapshot     string // of APFS: volumes are read from the snapshot with this name, others are left out; "": all
	Progress     func(volume string, files, packages int)
	Limits       catalog.Limits // of the result of all volumes of a source
}

// Inventory is the packages of a source.
type Inventory struct {
	Source   Source
	ID, Tag  string            // of a template: what was scanned
	Content  string            // of a template: the content ID of that tag
	Packages []catalog.Package // in the order of names, each once
	Volumes  []Volume
	Skipped  []Skipped
	Warnings []catalog.Warning // what within volumes could not be read, or was invalid
	Unread   int               // files and directories of Warnings that could not be read
}

// folderFormat is the Format of a directory.
const folderFormat = "dir"

// Volume is a file system that was cataloged.
type Volume struct {
	Name     string
	Role     string // "system", "data" or ""
	Format   string // "apfs", "ext4" or "dir"
	Mount    string // where its paths begin: "/" or "/Volumes/<name>"
	Files    int
	Packages int
	Notes    []string // possible errors in what was read, in sentences
}

// Skipped is a part of a source that was not cataloged.
type Skipped struct {
	Name, Reason string
	Partial      bool // it may hold packages
}

// Partial reports whether a part that may have packages could not be read.
func (i *Inventory) Partial() bool {
	return i.Unread > 0 || slices.ContainsFunc(i.Skipped, func(s Skipped) bool { return s.Partial })
}

// take catalogs a directory or an image.
func take(ctx context.Context, src Source, o Options) (*Inventory, error) {
	inv := &Inventory{Source: src}
	if src.Type == Folder {
		return inv, inv.catalogDir(ctx, o)
	}
	return inv, inv.catalogImage(ctx, o)
}

func (i *Inventory) catalogDir(ctx context.Context, o Options) error {
	root, closer, err := catalog.OpenDir(i.Source.Target)
	if err != nil {
		return err
	}
	defer closer.Close()
	return i.catalog(ctx, []volume{{fs: root, Volume: Volume{Name: i.Source.Target, Format: folderFormat}}}, o)
}

func (i *Inventory) catalogImage(ctx context.Context, o Options) error {
	img, err := disk.OpenImage(i.Source.Target)
	if err != nil {
		return err
	}
	defer func() { _ = img.Close() }()
	volumes, err := i.volumes(img, img.Size(), "", o)
	if err != nil {
		return err
	}
	return i.catalog(ctx, volumes, o)
}

// volume is a file system to catalog.
type volume struct {
	Volume
	group string // those of one group are one tree
	fs    fs.FS
}

// catalog catalogs volumes, and assigns each a path in one tree.
func (i *Inventory) catalog(ctx context.Context, volumes []volume, o Options) error {
	if len(volumes) == 0 && o.Snapshot != "" {
		return fmt.Errorf("no volume with a readable snapshot %q", o.Snapshot)
	}
	if len(volumes) == 0 && len(i.Skipped) == 0 {
		return errors.New("nothing in it is a file system")
	}
	mount(volumes)
	var all []catalog.Package
	for _, v := range volumes {
		res, err := catalog.Scan(ctx, v.fs, v.options(o))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			i.Skipped = append(i.Skipped, Skipped{Name: v.Name, Reason: err.Error(), Partial: true})
			continue
		}
		o.Limits = o.Limits.After(res)
		v.Files, v.Packages = res.Files, len(res.Packages)
		i.Volumes = append(i.Volumes, v.Volume)
		all = append(all, below(v.Mount, res)...)
		i.Warnings = append(i.Warnings, res.Warnings...)
		i.Unread += res.Unread
	}
	if i.Packages = all; len(volumes) > 1 {
		i.Packages = catalog.Merge(all)
	}
	return nil
}
