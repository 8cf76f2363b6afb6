package library

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/home"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// Registry is where templates are pushed to and pulled from.
type Registry interface {
	Push(ctx context.Context, o transfer.PushOptions) (api.PushResult, error)
	Manifest(ctx context.Context, ref transfer.Ref) (api.PullManifest, error)
	Pull(ctx context.Context, o transfer.PullOptions) (transfer.PullResult, error)
}

var _ Registry = (*transfer.Client)(nil)

// PushOptions say what becomes of a pushed template.
type PushOptions struct {
	Tag         string
	Description string
	// Existing is the id of the registry's template that gets the tag; "" is the
	// template of the same id as the local one, which is made when it is missing.
	Existing string
	Progress func(transfer.Progress)
	// Remembered is told how far the disks are read once more, so that the next push finds
	// what was changed.
	Remembered func(transfer.Progress)
}

// Push publishes the current version of a template.
func (l *Library) Push(ctx context.Context, reg Registry, id string, o PushOptions) (api.PushResult, error) {
	var none api.PushResult
	lock, err := l.hold(id)
	if err != nil {
		return none, err
	}
	defer lock.Release()
	r, c, err := l.read(id)
	if err != nil {
		return none, err
	}
	push := transfer.PushOptions{Progress: o.Progress, Request: api.PushRequest{
		ID: r.ID, Name: r.Name, Tag: o.Tag, Description: o.Description, Arch: r.Arch,
	}}
	if o.Existing != "" {
		push.Request.ID, push.Request.MustExist = o.Existing, true
	}
	dir := filepath.Join(l.dir, id, r.Current)
	if push.Request.NVRAM, err = os.ReadFile(filepath.Join(dir, nvramFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return none, fmt.Errorf("push: %w", bare(err))
	}
	for i, d := range c.view.HardDrives {
		if d.File == "" || d.File != filepath.Base(d.File) {
			return none, farm.Refused("Template %s names a disk %q, which is no plain file name", id, d.File)
		}
		file := published(c.view.HardDrives, i, filepath.Join(dir, d.File))
		l.rest(&file, l.known(r, o.Existing, i, d.File))
		push.Files = append(push.Files, file)
	}
	if push.Request.Config, err = c.bytes(); err != nil {
		return none, err
	}
	before := noted(push.Files)
	push.Roots = map[string]string{}
	result, err := reg.Push(ctx, push)
	if err != nil {
		return result, bare(err)
	}
	v := r.version(r.Current)
	v.Files = map[string]content{}
	for i, f := range push.Files {
		if k := before[i]; f.Disk != nil && k.held(f.Disk.Path) {
			k.Tip = push.Roots[f.Name]
			v.Files[filepath.Base(f.Disk.Path)] = k
		}
	}
	if o.Existing == "" {
		v.Tag, v.Number, v.ContentID = result.Tag, result.Number, result.ContentID
	}
	if err := l.write(id, r); err != nil {
		return result, err
	}
	v.remember(ctx, dir, o.Remembered)
	return result, nil
}

// unnamed is the tip of a content that has no name yet.
const unnamed = "-"

// noted is how the disks are before they are pushed.
func noted(files []transfer.PushFile) []content {
	out := make([]content, len(files))
	for i, f := range files {
		if f.Disk != nil {
			out[i] = contentOf(f.Disk.Path, f.Disk.Format, unnamed)
		}
	}
	return out
}

// past is what a disk is, or was made from.
type past struct {
	content
	dir string // where its file of sums is
}

// known says what is known of drive i of a template: of its file, or else of the same
// drive of the template that is to get the version, when that is here too.
func (l *Library) known(r record, existing string, i int, file string) past {
	dir := filepath.Join(l.dir, r.ID, r.Current)
	if k := r.version(r.Current).Files[file]; k.Tip != "" {
		return past{k, dir}
	}
	return l.remembered(existing, i)
}

// remembered says what is known of drive i of the template of that id; nothing, when it is
// not here.
func (l *Library) remembered(id string, i int) past {
	if !uuidForm.MatchString(id) {
		return past{}
	}
	r, c, err := l.read(id)
	if err != nil || i >= len(c.view.HardDrives) {
		return past{}
	}
	return past{r.version(r.Current).Files[c.view.HardDrives[i].File], filepath.Join(l.dir, id, r.Current)}
}

// rest has a disk pushed as what it is, or as what differs from what it was made from.
func (l *Library) rest(f *transfer.PushFile, p past) {
	if f.Disk == nil || p.Tip == "" {
		return
	}
	if filepath.Dir(f.Disk.Path) == p.dir && p.held(f.Disk.Path) {
		f.Root = p.Tip
	} else if sums := p.sums(p.dir); sums != "" {
		f.Parent = &transfer.PushParent{Tip: p.Tip, Sums: sums}
	}
}

// published says how the disk of a drive is pushed, and changes its entry in the configuration to what a pull will give: a
// raw disk of what its guest sees, so that a next tag costs what the guest changed. An image that cannot be read
// so is pushed byte for byte.
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

// PullOptions say what to pull.
type PullOptions struct {
	Ref transfer.Ref
	// Shrink also removes the local files of tags newer than the pulled one, which
	// otherwise stay so that going forward again costs nothing.
	Shrink   bool
	Progress func(transfer.Progress)
	// Built is told how far the disks are made of what has come and what was here.
	Built func(transfer.Progress)
}

// Pull makes a version of the registry the current one of its local template, which
// is made when it is missing. A pull that was cut is gone on with by the next one.
func (l *Library) Pull(ctx context.Context, reg Registry, o PullOptions) (VM, error) {
	m, err := reg.Manifest(ctx, o.Ref)
	if err != nil {
		return VM{}, err
	}
	if !uuidForm.MatchString(m.ID) || !contentForm.MatchString(m.ContentID) {
		return VM{}, fmt.Errorf("pull: the registry names template %q and version %q", m.ID, m.ContentID)
	}
	p := &pulling{l: l, reg: reg, o: o, m: m, temp: pullPrefix + m.ContentID}
	if _, err := os.Stat(filepath.Join(l.dir, m.ID, recordFile)); err == nil {
		return p.intoOld(ctx)
	}
	return p.intoNew(ctx)
}

// pulling is one pull.
type pulling struct {
	l    *Library
	reg  Registry
	o    PullOptions
	m    api.PullManifest
	temp string // directory that the version is made in
	disk map[string]content
}

// bring pulls the version into the temporary directory.
func (p *pulling) bring(ctx context.Context) error {
	dir := filepath.Join(p.l.dir, p.temp)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("pull: %w", bare(err))
	}
	lock, err := home.LockFile(dir+".lock", farm.Refused("This version is being pulled by another command"))
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(dir + ".lock"); lock.Release() }()
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil {
		return fmt.Errorf("pull: %w", bare(err))
	}
	s := settling{dir: dir, have: p.l.have(), manifest: map[string]api.PullFile{}, progress: p.o.Built}
	for _, f := range p.m.Files {
		s.manifest[f.Name] = f
	}
	built, err := p.fetch(ctx, dir, s.have)
	if err == nil {
		p.disk, err = s.settle(ctx, built)
	}
	return bare(err)
}

// move gives what was made its place.
func (p *pulling) move(to string) error {
	dir := filepath.Join(p.l.dir, p.temp)
	if err := os.Rename(filepath.Join(dir, wholeDir), to); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// version is what the record will say of it.
func (p *pulling) version() version {
	v := p.m.Version
	return version{Dir: newDir(), Tag: v.Tag, Number: v.Number, ContentID: p.m.ContentID, Files: p.disk}
}

// intoNew makes the template.
func (p *pulling) intoNew(ctx context.Context) (VM, error) {
	if err := p.bring(ctx); err != nil {
		return VM{}, err
	}
	l := p.l
	temp := newPrefix + rand.Text()
	if err := os.Mkdir(filepath.Join(l.dir, temp), 0o700); err != nil {
		return VM{}, fmt.Errorf("pull: %w", bare(err))
	}
	lock, err := home.LockFile(filepath.Join(l.dir, temp, lockFile), errors.New("taken"))
	if err != nil {
		return VM{}, err
	}
	defer lock.Release()
	v := p.version()
	r := record{
		ID: p.m.ID, Name: p.m.Name, Arch: p.m.Arch, Created: time.Now().UTC().Truncate(time.Second),
		Current: v.Dir, Versions: []version{v},
	}
	err = p.move(filepath.Join(l.dir, temp, v.Dir))
	if err == nil {
		err = l.place(temp, r)
	}
	if err != nil {
		return VM{}, fmt.Errorf("pull: %w", bare(err))
	}
	return l.show(r.ID)
}

// intoOld changes the current version of a template that is here.
func (p *pulling) intoOld(ctx context.Context) (VM, error) {
	l, id := p.l, p.m.ID
	lock, err := l.hold(id)
	if err != nil {
		return VM{}, err
	}
	defer lock.Release()
	r, _, err := l.read(id)
	if err != nil {
		return VM{}, fmt.Errorf("pull: local template %s: %w", id, bare(err))
	}
	if r.version(r.Current).ContentID == "" {
		return VM{}, farm.Refused("Local template %s has changes that were never pushed; push or delete it first", r.Name)
	}
	v := p.version()
	if i := slices.IndexFunc(r.Versions, func(have version) bool { return have.ContentID == v.ContentID }); i >= 0 {
		v.Dir, v.Files = r.Versions[i].Dir, r.Versions[i].Files
		r.Versions[i] = v
	} else {
		if err := p.bring(ctx); err != nil {
			return VM{}, err
		}
		if err := l.sweep(id, r); err != nil {
			return VM{}, err
		}
		if err := p.move(filepath.Join(l.dir, id, v.Dir)); err != nil {
			return VM{}, fmt.Errorf("pull: %w", bare(err))
		}
		v.Files = p.disk
		r.Versions = append(r.Versions, v)
	}
	r.Current = v.Dir
	r.Versions = slices.DeleteFunc(r.Versions, func(have version) bool {
		newer := have.Number > v.Number
		return have.Dir != v.Dir && (!newer || p.o.Shrink)
	})
	if err := l.write(id, r); err != nil {
		return VM{}, err
	}
	if err := l.sweep(id, r); err != nil {
		return VM{}, err
	}
	return l.show(id)
}

// sweep removes the directories of a template that its record does not name.
func (l *Library) sweep(id string, r record) error {
	list, err := os.ReadDir(filepath.Join(l.dir, id))
	if err != nil {
		return fmt.Errorf("clear template: %w", bare(err))
	}
	for _, item := range list {
		if !item.IsDir() || r.version(item.Name()) != nil {
			continue
		}
		if err := os.RemoveAll(filepath.Join(l.dir, id, item.Name())); err != nil {
			return fmt.Errorf("clear template: %w", bare(err))
		}
	}
	return nil
}
