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
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// PushOptions define the tag and the template that a push creates or updates.
type PushOptions struct {
	Tag         string
	Description string
	// TargetTemplate is the ID of the registry's template that gets the tag; "" means the template with
	// the ID of the local one, which is created if missing.
	TargetTemplate string
	PushProgress   func(transfer.Progress)
	// HashProgress receives the progress of reading the disks once more, so that the next push finds
	// the changes.
	HashProgress func(transfer.Progress)
}

// Push publishes the current version of a template.
func (l *Store) Push(ctx context.Context, reg Registry, id string, o PushOptions) (api.PushResult, error) {
	var none api.PushResult
	lock, err := l.lockTemplate(id)
	if err != nil {
		return none, err
	}
	defer lock.Release()
	r, c, err := l.readTemplate(id)
	if err != nil {
		return none, err
	}
	push := transfer.PushOptions{Progress: o.PushProgress, LayerDigests: map[string]string{}, Request: api.PushRequest{
		ID: r.ID, Name: r.Name, Tag: o.Tag, Description: o.Description, Arch: r.Arch,
	}}
	if o.TargetTemplate != "" {
		push.Request.ID, push.Request.MustExist = o.TargetTemplate, true
	}
	before, err := l.describeVersion(&push, r, c, o.TargetTemplate)
	if err != nil {
		return none, err
	}
	refuseIfChanged(&push, before)
	result, err := reg.Push(ctx, push)
	if err != nil {
		return result, withoutPaths(err)
	}
	if o.TargetTemplate == "" {
		v := r.findVersion(r.CurrentDir)
		v.Tag, v.Number, v.ContentID = result.Tag, result.Number, result.ContentID
	}
	return result, l.recordPush(ctx, r, setChainIDs(push, before), o.HashProgress)
}

// describeVersion adds the files and the configuration of a template's current version to a push, and
// returns the contents of the files as they are.
func (l *Store) describeVersion(
	push *transfer.PushOptions, r templateRecord, c config, existing string,
) ([]diskContent, error) {
	dir := filepath.Join(l.dir, r.ID, r.CurrentDir)
	var err error
	if push.Request.NVRAM, err = os.ReadFile(filepath.Join(dir, nvramFile)); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("push: %w", withoutPaths(err))
	}
	var before []diskContent
	for i, d := range c.parsed.HardDrives {
		if d.File == "" || d.File != filepath.Base(d.File) {
			return nil, farm.Refused("Template %s has a disk %q, which is a path and not a file name", r.ID, d.File)
		}
		file := pushFileOf(c.parsed.HardDrives, i, filepath.Join(dir, d.File))
		k := contentBeforePush(file)
		setPushSource(&file, l.knownOrigin(r, existing, i, d.File), k)
		push.Files, before = append(push.Files, file), append(before, k)
	}
	push.Request.Config, err = c.encode()
	return before, err
}

// recordPush records the contents of the disks of a version that was pushed.
func (l *Store) recordPush(
	ctx context.Context, r templateRecord, files map[string]diskContent, progress func(transfer.Progress),
) error {
	v := r.findVersion(r.CurrentDir)
	v.Files = files
	if err := l.writeRecord(r.ID, r); err != nil {
		return fmt.Errorf("version pushed, but recording this in the local template failed: %w", withoutPaths(err))
	}
	v.createChecksums(ctx, filepath.Join(l.dir, r.ID, r.CurrentDir), progress)
	return nil
}

// unknownChainID is the tip of a content whose chain ID is not known yet.
const unknownChainID = "-"

// contentBeforePush returns the content of a file before it is pushed.
func contentBeforePush(f transfer.PushFile) diskContent {
	if f.Disk != nil {
		return contentOf(f.Disk.Path, f.Disk.Format, unknownChainID)
	}
	return contentOf(f.Path, f.Format, unknownChainID)
}

// refuseIfChanged refuses a push before its version is created when a file was changed since before: the
// pushed data may be neither the old content nor the new one.
func refuseIfChanged(push *transfer.PushOptions, before []diskContent) {
	changed := farm.Refused(
		"A disk was changed during the push; nothing was published. Push again when no process writes to the disk")
	push.BeforePublish = func() error {
		for i, f := range push.Files {
			path := f.Path
			if f.Disk != nil {
				path = f.Disk.Path
			}
			if !before[i].matchesFile(path) {
				return changed
			}
		}
		return nil
	}
	push.AbandonOnFailure = func(err error) bool { return errors.Is(err, changed) }
}

// setChainIDs sets the chain IDs of the contents of a push's disks.
func setChainIDs(push transfer.PushOptions, before []diskContent) map[string]diskContent {
	files := map[string]diskContent{}
	for i, f := range push.Files {
		if f.Disk != nil {
			k := before[i]
			k.ChainID = push.LayerDigests[f.Name]
			files[filepath.Base(f.Disk.Path)] = k
		}
	}
	return files
}

// diskOrigin is the content of a disk, or of the disk that it was made from.
type diskOrigin struct {
	diskContent
	checksumDir string // directory of its checksum file
}

// knownOrigin returns the recorded content of drive i of a template: that of its file, otherwise that of
// the same drive of the template that is to get the version, if that is local, too.
func (l *Store) knownOrigin(r templateRecord, existing string, i int, file string) diskOrigin {
	dir := filepath.Join(l.dir, r.ID, r.CurrentDir)
	if k := r.findVersion(r.CurrentDir).Files[file]; k.ChainID != "" {
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
	r, c, err := l.readTemplate(id)
	if err != nil || i >= len(c.parsed.HardDrives) {
		return diskOrigin{}
	}
	return diskOrigin{r.findVersion(r.CurrentDir).Files[c.parsed.HardDrives[i].File], filepath.Join(l.dir, id,
		r.CurrentDir)}
}

// hasSameFile reports whether two contents are of one file that was not written to between them.
func (k diskContent) hasSameFile(other diskContent) bool {
	return k.FileBytes == other.FileBytes && k.ModifiedNanos == other.ModifiedNanos
}

// setPushSource has a disk pushed by its digest, or as the difference from the disk it was made from. now is
// its content.
func setPushSource(f *transfer.PushFile, p diskOrigin, now diskContent) {
	if f.Disk == nil || p.ChainID == "" {
		return
	}
	if filepath.Dir(f.Disk.Path) == p.checksumDir && p.hasSameFile(now) {
		f.ChainID = p.ChainID
	} else if sums := p.checksumPath(p.checksumDir); sums != "" {
		f.Parent = &transfer.PushParent{ChainID: p.ChainID, ChecksumFile: sums}
	}
}

// pushFileOf returns how the disk of a drive is pushed, and changes the drive's configuration to
// what a pull will deliver: a raw disk of what the guest sees, so that the next tag costs only what
// the guest changed. An image that cannot be read that way, such as an archive of anka, is pushed byte for
// byte.
func pushFileOf(drives []api.ConfigDrive, i int, path string) transfer.PushFile {
	d := &drives[i]
	asItIs := transfer.PushFile{Name: d.File, Path: path, Kind: api.FileDisk, Format: d.Format}
	disk := &diskfile.Disk{Path: path, Format: d.Format}
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
