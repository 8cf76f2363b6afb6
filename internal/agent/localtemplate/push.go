package localtemplate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// PushOptions define the tag and the template that a push creates or updates.
type PushOptions struct {
	Tag         string
	Description string
	// Existing is the ID of the registry's template that gets the tag; "" means the template with
	// the ID of the local one, which is created if missing.
	Existing string
	Progress func(transfer.Progress)
	// HashProgress receives the progress of reading the disks once more, so that the next push finds
	// the changes.
	HashProgress func(transfer.Progress)
}

// Push publishes the current version of a template.
func (l *Store) Push(ctx context.Context, reg Registry, id string, o PushOptions) (api.PushResult, error) {
	var none api.PushResult
	lock, err := l.lock(id)
	if err != nil {
		return none, err
	}
	defer lock.Release()
	r, c, err := l.read(id)
	if err != nil {
		return none, err
	}
	push := transfer.PushOptions{Progress: o.Progress, Roots: map[string]string{}, Request: api.PushRequest{
		ID: r.ID, Name: r.Name, Tag: o.Tag, Description: o.Description, Arch: r.Arch,
	}}
	if o.Existing != "" {
		push.Request.ID, push.Request.MustExist = o.Existing, true
	}
	before, err := l.describe(&push, r, c, o.Existing)
	if err != nil {
		return none, err
	}
	refuseIfChanged(&push, before)
	result, err := reg.Push(ctx, push)
	if err != nil {
		return result, withoutPaths(err)
	}
	if o.Existing == "" {
		v := r.version(r.Current)
		v.Tag, v.Number, v.ContentID = result.Tag, result.Number, result.ContentID
	}
	return result, l.pushed(ctx, r, setChainIDs(push, before), o.HashProgress)
}

// describe adds the files and the configuration of a template's current version to a push, and
// returns the contents of the files as they are.
func (l *Store) describe(push *transfer.PushOptions, r record, c config, existing string) ([]content, error) {
	dir := filepath.Join(l.dir, r.ID, r.Current)
	var err error
	if push.Request.NVRAM, err = os.ReadFile(filepath.Join(dir, nvramFile)); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("push: %w", withoutPaths(err))
	}
	var before []content
	for i, d := range c.view.HardDrives {
		if d.File == "" || d.File != filepath.Base(d.File) {
			return nil, farm.Refused("Template %s has a disk %q, which is a path and not a file name", r.ID, d.File)
		}
		file := published(c.view.HardDrives, i, filepath.Join(dir, d.File))
		k := contentBefore(file)
		setPushSource(&file, l.known(r, existing, i, d.File), k)
		push.Files, before = append(push.Files, file), append(before, k)
	}
	push.Request.Config, err = c.bytes()
	return before, err
}

// pushed records the contents of the disks of a version that was pushed.
func (l *Store) pushed(
	ctx context.Context, r record, files map[string]content, progress func(transfer.Progress),
) error {
	v := r.version(r.Current)
	v.Files = files
	if err := l.write(r.ID, r); err != nil {
		return fmt.Errorf("version pushed, but recording this in the local template failed: %w", withoutPaths(err))
	}
	v.remember(ctx, filepath.Join(l.dir, r.ID, r.Current), progress)
	return nil
}

// unnamed is the tip of a content whose chain ID is not known yet.
const unnamed = "-"

// contentBefore returns the content of a file before it is pushed.
func contentBefore(f transfer.PushFile) content {
	if f.Disk != nil {
		return contentOf(f.Disk.Path, f.Disk.Format, unnamed)
	}
	return contentOf(f.Path, f.Format, unnamed)
}

// refuseIfChanged refuses a push before its version is created when a file was changed since before: the
// pushed data may be neither the old content nor the new one.
func refuseIfChanged(push *transfer.PushOptions, before []content) {
	changed := farm.Refused(
		"A disk was changed during the push; nothing was published. Push again when no process writes to the disk")
	push.Ready = func() error {
		for i, f := range push.Files {
			path := f.Path
			if f.Disk != nil {
				path = f.Disk.Path
			}
			if !before[i].matches(path) {
				return changed
			}
		}
		return nil
	}
	push.Abandon = func(err error) bool { return errors.Is(err, changed) }
}

// setChainIDs sets the chain IDs of the contents of a push's disks.
func setChainIDs(push transfer.PushOptions, before []content) map[string]content {
	files := map[string]content{}
	for i, f := range push.Files {
		if f.Disk != nil {
			k := before[i]
			k.Tip = push.Roots[f.Name]
			files[filepath.Base(f.Disk.Path)] = k
		}
	}
	return files
}

// diskOrigin is the content of a disk, or of the disk that it was made from.
type diskOrigin struct {
	content
	dir string // directory of its checksum file
}

// known returns the recorded content of drive i of a template: that of its file, otherwise that of
// the same drive of the template that is to get the version, if that is local, too.
func (l *Store) known(r record, existing string, i int, file string) diskOrigin {
	dir := filepath.Join(l.dir, r.ID, r.Current)
	if k := r.version(r.Current).Files[file]; k.Tip != "" {
		return diskOrigin{k, dir}
	}
	return l.recordedOrigin(existing, i)
}

// recordedOrigin returns the recorded content of drive i of the template with that ID; the zero value
// when the template is not local.
func (l *Store) recordedOrigin(id string, i int) diskOrigin {
	if !uuidForm.MatchString(id) {
		return diskOrigin{}
	}
	r, c, err := l.read(id)
	if err != nil || i >= len(c.view.HardDrives) {
		return diskOrigin{}
	}
	return diskOrigin{r.version(r.Current).Files[c.view.HardDrives[i].File], filepath.Join(l.dir, id, r.Current)}
}

// same reports whether two contents are of one file that was not written to between them.
func (k content) same(other content) bool { return k.Size == other.Size && k.Time == other.Time }

// setPushSource has a disk pushed by its digest, or as the difference from the disk it was made from. now is
// its content.
func setPushSource(f *transfer.PushFile, p diskOrigin, now content) {
	if f.Disk == nil || p.Tip == "" {
		return
	}
	if filepath.Dir(f.Disk.Path) == p.dir && p.same(now) {
		f.Root = p.Tip
	} else if sums := p.sums(p.dir); sums != "" {
		f.Parent = &transfer.PushParent{Tip: p.Tip, Sums: sums}
	}
}

// published returns how the disk of a drive is pushed, and changes the drive's configuration to
// what a pull will deliver: a raw disk of what the guest sees, so that the next tag costs only what
// the guest changed. An image that cannot be read that way is pushed byte for byte.
func published(drives []api.ConfigDrive, i int, path string) transfer.PushFile {
	d := &drives[i]
	asItIs := transfer.PushFile{Name: d.File, Path: path, Kind: api.FileDisk, Format: d.Format}
	disk := &transfer.Disk{Path: path, Format: d.Format}
	image, err := disk.Open()
	if err != nil {
		return asItIs
	}
	if image.Close() != nil {
		return asItIs
	}
	name := strings.TrimSuffix(d.File, ".qcow2") + ".img"
	taken := slices.ContainsFunc(drives, func(other api.ConfigDrive) bool { return other.File == name })
	if strings.HasSuffix(d.File, ".qcow2") && !taken {
		d.File = name
	}
	d.Format = "raw"
	return transfer.PushFile{Name: d.File, Kind: api.FileDisk, Disk: disk}
}
