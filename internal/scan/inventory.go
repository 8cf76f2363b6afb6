package scan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/glob"
	"github.com/buildyard/buildyard/internal/scan/stepcache"
)

// Options configure how a source is cataloged.
type Options struct {
	Storage      string   // directory of the registry, for templates
	AllTags      bool     // of templates without a tag; false: the newest
	IgnoreSystem bool     // leave the system volume of a Mac out
	IncludeMacOS bool     // macOS itself is a package
	Platform     string   // of a container image, "linux/arm64"; "": that of this machine, or the only one
	Snapshot     string   // of APFS: volumes are read from the snapshot with this name, others are left out; "": all
	Keys         [][]byte // for encrypted parts of disks: see disk.NewKeys
	Progress     func(volume string, files, packages int)
	// Exclude are patterns of files and directories that are not walked, compared with the paths of reports;
	// nil: none. Such a scan keeps no steps and uses none.
	Exclude *glob.Set
	Limits  catalog.Limits // of the result of all volumes of a source
	// Development reports packages that lock files name for development alone.
	Development bool
	Cache       *stepcache.Cache // of steps of scans of templates; nil: none
}

// Inventory is the packages of a source.
type Inventory struct {
	Source     Source
	ID, Tag    string            // of a template: what was scanned
	Name       string            // of a template
	ContentID  string            // of a template: the content ID of that tag
	Container  ContainerImage    // of a container image: what was scanned
	Packages   []catalog.Package // in the order of names, each once
	Volumes    []Volume
	Skipped    []Skipped
	Warnings   []catalog.Warning // what within volumes could not be read, or was invalid
	Unreadable int               // files and directories of Warnings that could not be read
	Excluded   int               // files and directories that Options.Exclude left out
	LeftOut    int               // packages that only lock files name, for development alone
	Notes      []string          // about the scan itself, in sentences

	open openVolumes // the source again; nil: it cannot be
}

// dirFormat is the Format of a directory.
const dirFormat = "dir"

// Volume is a file system that was cataloged.
type Volume struct {
	Name      string
	Role      string // "system", "data" or ""
	Format    string // "apfs", "btrfs", "ext4", "hfsplus", "xfs", "layers" or "dir"; of a bill of materials, its format
	MountPath string // where its paths begin: "/" or "/Volumes/<name>"
	Files     int
	Packages  int
	FilesKept int      // files whose packages are those of an earlier version's scan
	Notes     []string // possible errors in what was read, in sentences
}

// Skipped is a part of a source that was not cataloged.
type Skipped struct {
	Name, Reason    string
	MayHavePackages bool // it may hold packages
}

// Partial reports whether a part that may have packages could not be read.
func (i *Inventory) Partial() bool {
	return i.Unreadable > 0 || slices.ContainsFunc(i.Skipped, func(s Skipped) bool { return s.MayHavePackages })
}

// catalogSource catalogs what is not a template.
func catalogSource(ctx context.Context, src Source, o Options) (*Inventory, error) {
	inv := &Inventory{Source: src}
	switch src.Type {
	case Dir:
		return inv, inv.catalogDir(ctx, o)
	case Container:
		return inv, inv.catalogContainer(ctx, o)
	case SBOM:
		return inv, inv.catalogSBOM(o)
	default:
		return inv, inv.catalogImage(ctx, o)
	}
}

func (i *Inventory) catalogDir(ctx context.Context, o Options) error {
	return i.catalogOpened(ctx, o, func(_ context.Context, i *Inventory) ([]volume, io.Closer, error) {
		root, closer, err := catalog.OpenDir(i.Source.Target)
		if err != nil {
			return nil, nil, err
		}
		return []volume{{open: opened(root), Volume: Volume{Name: i.Source.Target, Format: dirFormat}}}, closer, nil
	})
}

func (i *Inventory) catalogImage(ctx context.Context, o Options) error {
	return i.catalogOpened(ctx, o, func(ctx context.Context, i *Inventory) ([]volume, io.Closer, error) {
		img, err := disk.OpenImage(i.Source.Target)
		if err != nil {
			return nil, nil, err
		}
		volumes, err := i.openImageVolumes(ctx, img, o)
		if err != nil {
			return nil, nil, errors.Join(err, img.Close())
		}
		return volumes, img, nil
	})
}

// volume is a file system to catalog.
type volume struct {
	Volume
	group    string     // those of one group are one tree
	bootRank int        // how likely it is the boot volume of a machine
	disk     *disk.Disk // of a template; nil: the volume is on a file, or a directory
	start    int64      // offset on the disk in bytes
	length   int64      // bytes
	mapped   bool       // its bytes are not those of the disk from start on

	// open returns the files. A disk may have a thousand volumes: what one caches is freed with its files.
	open func() (fs.FS, error)
}

// opened returns the function of files that are open.
func opened(files fs.FS) func() (fs.FS, error) { return func() (fs.FS, error) { return files, nil } }

// catalogVolumes catalogs volumes, and assigns each a path in one tree.
func (i *Inventory) catalogVolumes(ctx context.Context, volumes []volume, o Options) error {
	if len(volumes) == 0 && o.Snapshot != "" {
		return fmt.Errorf("no volume has a readable snapshot %q", o.Snapshot)
	}
	if len(volumes) == 0 && len(i.Skipped) == 0 {
		return errors.New("no supported file system found in the image")
	}
	assignMountPaths(volumes)
	var all []catalog.Package
	for _, v := range volumes {
		if o.excludesVolume(v.MountPath) {
			i.Excluded++
			i.Skipped = append(i.Skipped, Skipped{Name: v.Name, Reason: "the volume is excluded, as was asked for"})
			continue
		}
		res, kept, err := v.scan(ctx, o)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			i.Skipped = append(i.Skipped, Skipped{Name: v.Name, Reason: err.Error(), MayHavePackages: true})
			continue
		}
		o.Limits = o.Limits.Remaining(res)
		v.Files, v.FilesKept, v.Packages = res.Files, res.FilesKept, len(res.Packages)
		i.Volumes = append(i.Volumes, v.Volume)
		all = append(all, underMount(v.MountPath, res)...)
		i.Warnings = append(i.Warnings, res.Warnings...)
		i.Unreadable += res.Unreadable
		i.Excluded += res.Excluded
		i.LeftOut += res.LeftOut
		if err := kept.save(ctx); err != nil {
			i.Notes = append(i.Notes, "the steps of the scan were not kept for the next one: "+err.Error())
		}
	}
	if i.Packages = all; len(volumes) > 1 {
		i.Packages = catalog.Merge(all)
	}
	return nil
}

// scan opens and catalogs a volume.
func (v *volume) scan(ctx context.Context, o Options) (*catalog.Result, *keptSteps, error) {
	files, err := v.open()
	if err != nil {
		return nil, nil, err
	}
	options := v.catalogOptions(o)
	var kept *keptSteps
	if o.Exclude == nil {
		kept = v.loadSteps(files, o.Cache, options.Extractors)
	}
	if kept != nil {
		options.Steps = kept.steps
	}
	res, err := catalog.Scan(ctx, files, options)
	return res, kept, err
}
