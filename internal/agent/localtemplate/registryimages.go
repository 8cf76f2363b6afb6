package localtemplate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/transfer"
)

// exportPrefix begins the name of the directory, next to an exported image, that its version is
// pulled into; the version's content ID follows.
const exportPrefix = ".export-"

// convertedDir is in that directory and contains the image in its other format.
const convertedDir = ".converted"

// RegistryImages moves disk images between files and a registry, without a local template.
type RegistryImages struct {
	ImageTool hv.ImageDriver
	Registry  Registry
	// Store, when not nil, may have a template that a pushed image differs little from.
	Store *Store
}

// Push pushes a disk image as a version of a registry's template; nothing is copied. The image
// must not be changed in the meantime. Without o.Existing it becomes a new template with the name
// and the other settings.
func (x RegistryImages) Push(ctx context.Context, image hv.Disk, s Settings, o PushOptions) (api.PushResult, error) {
	var none api.PushResult
	if s.Name == "" {
		return none, farm.Invalid("name", "is required")
	}
	if err := s.check(); err != nil {
		return none, err
	}
	if _, err := x.ImageTool.Check(ctx, image); err != nil {
		return none, fmt.Errorf("import %s: %w", image.Path, err)
	}
	path, err := filepath.Abs(image.Path)
	if err != nil {
		return none, fmt.Errorf("import: %w", err)
	}
	r, c := newTemplate(s, x.ImageTool.Format())
	c.parsed.UUID = "" // the registry chooses it: a repeated push must be the same request
	drive := &c.parsed.HardDrives[0]
	drive.Format = image.Format
	file := pushFileOf(c.parsed.HardDrives, 0, path)
	before := contentBeforePush(file)
	request := api.PushRequest{Name: r.Name, Tag: o.Tag, Description: o.Description, Arch: r.Arch}
	if o.TargetTemplate != "" {
		request.ID, request.MustExist = o.TargetTemplate, true
		if x.Store != nil {
			setPushSource(&file, x.Store.recordedOrigin(o.TargetTemplate, 0), before)
		}
	}
	if request.Config, err = c.encode(); err != nil {
		return none, fmt.Errorf("import: %w", err)
	}
	push := transfer.PushOptions{Progress: o.PushProgress, Request: request, Files: []transfer.PushFile{file}}
	refuseIfChanged(&push, []diskContent{before})
	result, err := x.Registry.Push(ctx, push)
	return result, withoutPaths(err)
}

// ExportOptions define which disk of which version to export, and where to.
type ExportOptions struct {
	Ref      transfer.VersionRef
	DiskName string  // its name in the version; "" is the boot disk
	Dest     hv.Disk // must not exist
	// PullProgress receives the progress of the pull, Converted that of the conversion to another format.
	// Either may be nil.
	PullProgress    func(transfer.Progress)
	ConvertProgress Progress
}

// Export pulls a version and saves one of its disks as a separate image. The pulled files are next
// to it until then, so that an interrupted export can be resumed.
func (x RegistryImages) Export(ctx context.Context, o ExportOptions) error {
	if _, err := os.Lstat(o.Dest.Path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(farm.Refused("%s already exists", o.Dest.Path), err)
	}
	m, err := x.Registry.PeekManifest(ctx, o.Ref)
	if err != nil {
		return err
	}
	drive, err := findDrive(m, o.DiskName)
	if err != nil {
		return err
	}
	if drive.Format == hv.FormatAnka {
		return farm.Refused("Disk %s of %s is an archive of anka, which no other program can read; start the template "+
			"on a node with anka", drive.File, m.Name)
	}
	if !contentForm.MatchString(m.ContentID) {
		return fmt.Errorf("export: registry returned an invalid content ID %q", m.ContentID)
	}
	dir := filepath.Join(filepath.Dir(o.Dest.Path), exportPrefix+m.ContentID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("export: %w", withoutPaths(err))
	}
	lock, err := datadir.LockFile(dir+lockSuffix, farm.Refused("This version is being exported by another command"))
	if err != nil {
		return err
	}
	defer lock.Discard()
	ref := transfer.VersionRef{ID: m.ID, ContentID: m.ContentID}
	if _, err := x.Registry.Pull(ctx, transfer.PullOptions{Ref: ref, Dir: dir, Progress: o.PullProgress}); err != nil {
		return withoutPaths(err)
	}
	from := hv.Disk{Path: filepath.Join(dir, drive.File), Format: drive.Format}
	if err := x.writeImage(ctx, from, o.Dest, o.ConvertProgress); err != nil {
		return fmt.Errorf("export: %w", withoutPaths(err))
	}
	return withoutPaths(os.RemoveAll(dir))
}

// findDrive returns the disk with a name of a version, or the first disk without a name.
func findDrive(m api.PullManifest, name string) (api.ConfigDrive, error) {
	var c api.TemplateConfig
	if err := json.Unmarshal(m.Config, &c); err != nil {
		return api.ConfigDrive{}, fmt.Errorf("read configuration of %s %s: %w", m.Name, m.Version.Tag, err)
	}
	var names []string
	for _, d := range c.HardDrives {
		if d.File != filepath.Base(d.File) {
			return api.ConfigDrive{}, farm.Refused("Template %s has a disk %q, which is a path and not a file name",
				m.ID,
				d.File)
		}
		if name == "" || d.File == name {
			return d, nil
		}
		names = append(names, d.File)
	}
	return api.ConfigDrive{}, farm.Errorf(farm.CodeNotFound, "disk not found: %s %s has no disk %q; its disks are %q",
		m.Name, m.Version.Tag,
		name, names)
}

// writeImage creates one image from another and makes it durable.
func (x RegistryImages) writeImage(ctx context.Context, from, to hv.Disk, progress Progress) error {
	if from.Format != to.Format {
		dir := filepath.Join(filepath.Dir(from.Path), convertedDir)
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
			return err
		}
		part := hv.Disk{Path: filepath.Join(dir, filepath.Base(from.Path)), Format: to.Format}
		stop := reportDirGrowth(dir, max(host.AllocatedBytes(from.Path), 1), progress)
		err := x.ImageTool.Convert(ctx, from, part)
		stop(err)
		if err != nil {
			return err
		}
		from = part
	}
	if err := syncFile(from.Path); err != nil {
		return err
	}
	// A link and not a rename: it does not replace a file that was created there in the meantime.
	if err := os.Link(from.Path, to.Path); err != nil {
		return err
	}
	return datadir.SyncDir(filepath.Dir(to.Path))
}
