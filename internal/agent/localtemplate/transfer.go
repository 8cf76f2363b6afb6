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
	Look(ctx context.Context, ref transfer.Ref) (api.PullManifest, error)
	Pull(ctx context.Context, o transfer.PullOptions) (transfer.PullResult, error)
}

var _ Registry = (*transfer.Client)(nil)

// PullOptions define what to pull.
type PullOptions struct {
	Ref transfer.Ref
	// Shrink also removes the local files of tags newer than the pulled one, which otherwise stay
	// so that returning to them costs nothing.
	Shrink   bool
	Progress func(transfer.Progress)
	// Built receives the progress of making the disks from the pulled files and the local ones.
	Built func(transfer.Progress)
}

// Pull makes a version of the registry the current one of its local template, which is created if
// missing. An interrupted pull is resumed by the next one.
func (l *Store) Pull(ctx context.Context, reg Registry, o PullOptions) (Template, error) {
	m, err := reg.Look(ctx, o.Ref) // not a pull: it may be local already
	if err != nil {
		return Template{}, err
	}
	if !uuidForm.MatchString(m.ID) || !contentForm.MatchString(m.ContentID) {
		return Template{}, fmt.Errorf("pull: registry returned an invalid template ID %q or content ID %q", m.ID,
			m.ContentID)
	}
	p := &templatePull{l: l, reg: reg, o: o, m: m, temp: pullPrefix + m.ContentID}
	if _, err := os.Stat(filepath.Join(l.dir, m.ID, recordFile)); err == nil {
		return p.updateTemplate(ctx)
	}
	return p.createTemplate(ctx)
}

// templatePull is one pull.
type templatePull struct {
	l    *Store
	reg  Registry
	o    PullOptions
	m    api.PullManifest
	temp string // directory that the version is made in
	disk map[string]content
}

// pullVersion pulls the version into the temporary directory.
func (p *templatePull) pullVersion(ctx context.Context) error {
	dir := filepath.Join(p.l.dir, p.temp)
	lock, err := datadir.LockFile(dir+lockSuffix, farm.Refused("This version is being pulled by another command"))
	if err != nil {
		return err
	}
	defer lock.Discard()
	now := time.Now()
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chtimes(dir, now, now)); err != nil {
		return fmt.Errorf("pull: %w", withoutPaths(err))
	}
	s := pullCommit{dir: dir, have: p.l.have(), manifest: map[string]api.PullFile{}, progress: p.o.Built}
	for _, f := range p.m.Files {
		s.manifest[f.Name] = f
	}
	built, err := p.fetch(ctx, s)
	if err != nil {
		return withoutPaths(err)
	}
	p.disk, err = s.assemble(ctx, built)
	if !errors.Is(err, fs.ErrNotExist) {
		return withoutPaths(err)
	}
	// Some of what an earlier pull left is missing.
	if err := remove(filepath.Join(dir, builtFile)); err != nil {
		return withoutPaths(err)
	}
	if built, err = p.fetch(ctx, s); err == nil {
		p.disk, err = s.assemble(ctx, built)
	}
	return withoutPaths(err)
}

// move renames the complete version to its final directory. It removes builtFile first, since that
// refers to files which are elsewhere afterwards.
func (p *templatePull) move(to string) error {
	dir := filepath.Join(p.l.dir, p.temp)
	if err := errors.Join(remove(filepath.Join(dir, builtFile)), datadir.SyncDir(dir)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, wholeDir), to); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// version returns the record's entry of the pulled version.
func (p *templatePull) version() version {
	v := p.m.Version
	return version{Dir: newDir(), Tag: v.Tag, Number: v.Number, ContentID: p.m.ContentID, Files: p.disk}
}

// createTemplate creates the template.
func (p *templatePull) createTemplate(ctx context.Context) (Template, error) {
	if err := p.pullVersion(ctx); err != nil {
		return Template{}, err
	}
	l := p.l
	temp := newPrefix + rand.Text()
	if err := os.Mkdir(filepath.Join(l.dir, temp), 0o700); err != nil {
		return Template{}, fmt.Errorf("pull: %w", withoutPaths(err))
	}
	lock, err := datadir.LockFile(filepath.Join(l.dir, temp, lockFile), errors.New("taken"))
	if err != nil {
		return Template{}, err
	}
	defer lock.Release()
	v := p.version()
	r := record{
		ID: p.m.ID, Name: p.m.Name, Arch: p.m.Arch, Created: time.Now().UTC().Truncate(time.Second),
		Current: v.Dir, Versions: []version{v},
	}
	err = p.move(filepath.Join(l.dir, temp, v.Dir))
	if err == nil {
		err = l.commitDir(temp, r)
	}
	if err != nil {
		return Template{}, fmt.Errorf("pull: %w", withoutPaths(err))
	}
	return l.show(r.ID)
}

// updateTemplate changes the current version of a template that exists locally.
func (p *templatePull) updateTemplate(ctx context.Context) (Template, error) {
	l, id := p.l, p.m.ID
	lock, err := l.lock(id)
	if err != nil {
		return Template{}, err
	}
	defer lock.Release()
	r, _, err := l.read(id)
	if err != nil {
		return Template{}, fmt.Errorf("pull: read local template %s: %w", id, withoutPaths(err))
	}
	if err := l.protectChanged(&r); err != nil {
		return Template{}, err
	}
	v := p.version()
	here := func(have version) bool { return have.ContentID == v.ContentID && have.isUnchanged(l.dirOf(id, have)) }
	if i := slices.IndexFunc(r.Versions, here); i >= 0 {
		v.Dir, v.Files = r.Versions[i].Dir, r.Versions[i].Files
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
		if err := p.move(filepath.Join(l.dir, id, v.Dir)); err != nil {
			return Template{}, fmt.Errorf("pull: %w", withoutPaths(err))
		}
		v.Files = p.disk
		r.Versions = append(r.Versions, v)
	}
	r.Current = v.Dir
	r.Versions = slices.DeleteFunc(r.Versions, func(have version) bool {
		newer, own := have.Number > v.Number, have.ContentID == ""
		return have.Dir != v.Dir && !own && (!newer || p.o.Shrink)
	})
	if err := l.write(id, r); err != nil {
		return Template{}, err
	}
	if err := l.removeUnlisted(id, r); err != nil {
		return Template{}, err
	}
	return l.show(id)
}

// protectChanged clears the content IDs of versions whose disks their owner has changed, so that no pull
// uses or removes them. It refuses a pull that would replace such a version.
func (l *Store) protectChanged(r *record) error {
	for i := range r.Versions {
		if v := &r.Versions[i]; v.hasChanged(l.dirOf(r.ID, *v)) {
			v.ContentID = ""
		}
	}
	if r.version(r.Current).ContentID == "" {
		return farm.Refused("Local template %s has changes that were never pushed; push or delete it first", r.Name)
	}
	return nil
}

// removeUnlisted removes the directories of a template that are missing in its record.
func (l *Store) removeUnlisted(id string, r record) error {
	list, err := os.ReadDir(filepath.Join(l.dir, id))
	if err != nil {
		return fmt.Errorf("remove old files of local template: %w", withoutPaths(err))
	}
	for _, item := range list {
		if !item.IsDir() || r.version(item.Name()) != nil {
			continue
		}
		if err := os.RemoveAll(filepath.Join(l.dir, id, item.Name())); err != nil {
			return fmt.Errorf("remove old files of local template: %w", withoutPaths(err))
		}
	}
	return nil
}
