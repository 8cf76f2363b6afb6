package localtemplate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// Registry is a registry that templates are pushed to and pulled from.
type Registry interface {
	Push(ctx context.Context, o transfer.PushOptions) (api.PushResult, error)
	PeekManifest(ctx context.Context, ref transfer.VersionRef) (api.PullManifest, error)
	Pull(ctx context.Context, o transfer.PullOptions) (transfer.PullResult, error)
}

var _ Registry = (*transfer.Client)(nil)

// PullOptions define what to pull.
type PullOptions struct {
	Ref transfer.VersionRef
	// Shrink also removes the local files of tags newer than the pulled one, which otherwise stay
	// so that returning to them costs nothing.
	Shrink       bool
	PullProgress func(transfer.Progress)
	// AssembleProgress receives the progress of making the disks from the pulled files and the local ones.
	AssembleProgress func(transfer.Progress)
}

// Pull makes a version of the registry the current one of its local template, which is created if
// missing. An interrupted pull is resumed by the next one.
func (l *Store) Pull(ctx context.Context, reg Registry, o PullOptions) (Template, error) {
	m, err := reg.PeekManifest(ctx, o.Ref) // not a pull: it may be local already
	if err != nil {
		return Template{}, err
	}
	if !uuidForm.MatchString(m.ID) || !contentForm.MatchString(m.ContentID) {
		return Template{}, fmt.Errorf("pull: registry returned an invalid template ID %q or content ID %q", m.ID,
			m.ContentID)
	}
	p := &templatePull{store: l, registry: reg, opts: o, manifest: m, tempDir: pullPrefix + m.ContentID}
	if _, err := os.Stat(filepath.Join(l.dir, m.ID, recordFile)); err == nil {
		return p.pullIntoTemplate(ctx)
	}
	return p.pullNewTemplate(ctx)
}

// templatePull is one pull.
type templatePull struct {
	store        *Store
	registry     Registry
	opts         PullOptions
	manifest     api.PullManifest
	tempDir      string // directory that the version is made in
	diskContents map[string]diskContent
}

// pullVersion pulls the version into the temporary directory.
func (p *templatePull) pullVersion(ctx context.Context) error {
	dir := filepath.Join(p.store.dir, p.tempDir)
	lock, err := datadir.LockFile(dir+lockSuffix, farm.Refused("This version is being pulled by another command"))
	if err != nil {
		return err
	}
	defer lock.Discard()
	now := time.Now()
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chtimes(dir, now, now)); err != nil {
		return fmt.Errorf("pull: %w", withoutPaths(err))
	}
	s := pullAssembly{
		pullDir: dir, localDisks: p.store.localDisks(), manifest: map[string]api.PullFile{},
		progress: p.opts.AssembleProgress,
	}
	for _, f := range p.manifest.Files {
		s.manifest[f.Name] = f
	}
	built, err := p.fetch(ctx, s)
	if err != nil {
		return withoutPaths(err)
	}
	p.diskContents, err = s.assemble(ctx, built)
	if !errors.Is(err, fs.ErrNotExist) {
		return withoutPaths(err)
	}
	// Some of what an earlier pull left is missing.
	if err := removeFile(filepath.Join(dir, builtFile)); err != nil {
		return withoutPaths(err)
	}
	if built, err = p.fetch(ctx, s); err == nil {
		p.diskContents, err = s.assemble(ctx, built)
	}
	return withoutPaths(err)
}

// commitTo renames the complete version to its final directory. It removes builtFile first, since that
// refers to files which are elsewhere afterwards.
func (p *templatePull) commitTo(to string) error {
	dir := filepath.Join(p.store.dir, p.tempDir)
	if err := errors.Join(removeFile(filepath.Join(dir, builtFile)), datadir.SyncDir(dir)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, wholeDir), to); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// newVersion returns the record's entry of the pulled version.
func (p *templatePull) newVersion() templateVersion {
	v := p.manifest.Version
	return templateVersion{
		DirName: newDirName(), Tag: v.Tag, Number: v.Number, ContentID: p.manifest.ContentID,
		Files: p.diskContents,
	}
}

// pullNewTemplate pulls the version of a template that does not exist locally.
func (p *templatePull) pullNewTemplate(ctx context.Context) (Template, error) {
	if err := p.pullVersion(ctx); err != nil {
		return Template{}, err
	}
	l := p.store
	temp := newPrefix + rand.Text()
	if err := os.Mkdir(filepath.Join(l.dir, temp), 0o700); err != nil {
		return Template{}, fmt.Errorf("pull: %w", withoutPaths(err))
	}
	lock, err := datadir.LockFile(filepath.Join(l.dir, temp, lockFile), errors.New("taken"))
	if err != nil {
		return Template{}, err
	}
	defer lock.Release()
	v := p.newVersion()
	r := templateRecord{
		ID: p.manifest.ID, Name: p.manifest.Name, Arch: p.manifest.Arch,
		Created:    time.Now().UTC().Truncate(time.Second),
		CurrentDir: v.DirName, Versions: []templateVersion{v},
	}
	err = p.commitTo(filepath.Join(l.dir, temp, v.DirName))
	if err == nil {
		err = l.commitDir(temp, r)
	}
	if err != nil {
		return Template{}, fmt.Errorf("pull: %w", withoutPaths(err))
	}
	return l.showTemplate(r.ID)
}

// pullIntoTemplate pulls the version and makes it the current one of a template that exists locally.
func (p *templatePull) pullIntoTemplate(ctx context.Context) (Template, error) {
	l, id := p.store, p.manifest.ID
	lock, err := l.lockTemplate(id)
	if err != nil {
		return Template{}, err
	}
	defer lock.Release()
	r, _, err := l.readTemplate(id)
	if err != nil {
		return Template{}, fmt.Errorf("pull: read local template %s: %w", id, withoutPaths(err))
	}
	if err := l.protectChanged(&r); err != nil {
		return Template{}, err
	}
	v := p.newVersion()
	here := func(have templateVersion) bool {
		return have.ContentID == v.ContentID && have.isUnchanged(l.versionDir(id, have))
	}
	if i := slices.IndexFunc(r.Versions, here); i >= 0 {
		v.DirName, v.Files = r.Versions[i].DirName, r.Versions[i].Files
		r.Versions[i] = v
	} else {
		if err := p.pullVersion(ctx); err != nil {
			return Template{}, err
		}
		// The pull may have taken long, and the owner may have written to a disk in the meantime.
		if err := l.protectChanged(&r); err != nil {
			return Template{}, err
		}
		if err := l.removeUnlisted(id, r); err != nil {
			return Template{}, err
		}
		if err := p.commitTo(filepath.Join(l.dir, id, v.DirName)); err != nil {
			return Template{}, fmt.Errorf("pull: %w", withoutPaths(err))
		}
		v.Files = p.diskContents
		r.Versions = append(r.Versions, v)
	}
	r.CurrentDir = v.DirName
	r.Versions = slices.DeleteFunc(r.Versions, func(have templateVersion) bool {
		newer, own := have.Number > v.Number, have.ContentID == ""
		return have.DirName != v.DirName && !own && (!newer || p.opts.Shrink)
	})
	if err := l.writeRecord(id, r); err != nil {
		return Template{}, err
	}
	if err := l.removeUnlisted(id, r); err != nil {
		return Template{}, err
	}
	return l.showTemplate(id)
}

// protectChanged clears the content IDs of versions whose disks their owner has changed, so that no pull
// uses or removes them. It refuses a pull that would replace such a version.
func (l *Store) protectChanged(r *templateRecord) error {
	for i := range r.Versions {
		if v := &r.Versions[i]; v.hasChanged(l.versionDir(r.ID, *v)) {
			v.ContentID = ""
		}
	}
	if r.findVersion(r.CurrentDir).ContentID == "" {
		return farm.Refused("Local template %s has changes that were never pushed; push or delete it first", r.Name)
	}
	return nil
}

// removeUnlisted removes the directories of a template that are missing in its record.
func (l *Store) removeUnlisted(id string, r templateRecord) error {
	list, err := os.ReadDir(filepath.Join(l.dir, id))
	if err != nil {
		return fmt.Errorf("remove old files of local template: %w", withoutPaths(err))
	}
	for _, item := range list {
		if !item.IsDir() || r.findVersion(item.Name()) != nil {
			continue
		}
		if err := os.RemoveAll(filepath.Join(l.dir, id, item.Name())); err != nil {
			return fmt.Errorf("remove old files of local template: %w", withoutPaths(err))
		}
	}
	return nil
}
