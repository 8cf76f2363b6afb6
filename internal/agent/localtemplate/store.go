package localtemplate

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

const (
	recordFile = "vm.json"
	configFile = "config.json" // of a version
	nvramFile  = "nvram"       // of a version that has one
	lockFile   = "lock"
	localDir   = "local"  // version that never came from a registry
	newPrefix  = ".new-"  // being made
	gonePrefix = ".gone-" // being removed
	pullPrefix = ".pull-" // a pull that is in progress or was interrupted
	lockSuffix = ".lock"  // of the lock of such a pull
	pullKept   = 7 * 24 * time.Hour
)

var (
	uuidForm    = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	contentForm = regexp.MustCompile(`^[0-9a-f]{32,128}$`)
)

// Template is a local template as it is shown.
type Template struct {
	ID          string           `json:"id"`
	Name        string           `json:"name"`
	Arch        string           `json:"arch"`
	OS          string           `json:"os,omitempty"` // of the guest: linux, macos or windows; "" = not known
	CPUs        int              `json:"cpus"`
	MemoryMB    int              `json:"memory_mb"`
	NetworkMode string           `json:"network"`
	Firmware    string           `json:"firmware"`
	Ports       []api.ConfigPort `json:"ports"`
	Disks       []Disk           `json:"disks"`
	SizeBytes   int64            `json:"size"` // bytes allocated, all versions
	Tag         string           `json:"tag,omitempty"`
	ContentID   string           `json:"content_id,omitempty"`
	Created     time.Time        `json:"created"`
}

// Disk is one disk of a Template.
type Disk struct {
	FileName  string `json:"file"`
	Format    string `json:"format"`
	SizeBytes int64  `json:"size"` // bytes allocated
}

// templateRecord is the content of recordFile.
type templateRecord struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Arch       string            `json:"arch"`
	Created    time.Time         `json:"created"`
	CurrentDir string            `json:"current"` // Dir of the version that is shown and pushed
	Versions   []templateVersion `json:"versions"`
}

// templateVersion is one directory in the template's directory.
type templateVersion struct {
	DirName string `json:"dir"` // no content ID: the content changes in place, so no ID would remain valid
	Tag     string `json:"tag,omitempty"`
	Number  int    `json:"number"`
	// ContentID is "" when no registry has the version as it is. Its disks may have been changed
	// since then: see changed.
	ContentID string `json:"content_id,omitempty"`
	// Files maps the names of its disks to their contents.
	Files map[string]diskContent `json:"files,omitempty"`
}

// hasChanged reports whether a disk was written to since it was pushed or pulled.
func (v templateVersion) hasChanged(dir string) bool {
	for name, k := range v.Files {
		path := filepath.Join(dir, filepath.Base(name))
		if _, err := os.Stat(path); err == nil && k.ChainID != "" && !k.matchesFile(path) {
			return true
		}
	}
	return false
}

// isUnchanged reports whether every disk is as it was pushed or pulled.
func (v templateVersion) isUnchanged(dir string) bool {
	for name, k := range v.Files {
		if k.ChainID != "" && !k.matchesFile(filepath.Join(dir, filepath.Base(name))) {
			return false
		}
	}
	return true
}

// versionDir returns the directory of a version of a template.
func (l *Store) versionDir(id string, v templateVersion) string {
	return filepath.Join(l.dir, id, filepath.Base(v.DirName))
}

// newDirName returns a new name for a version's directory.
func newDirName() string { return strings.ToLower(rand.Text()) }

// withoutPaths removes the paths of the store from an error, since they are internal.
func withoutPaths(err error) error {
	if farm.CodeOf(err) != farm.CodeInternal {
		return err // its message is meant for users
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

func (r *templateRecord) findVersion(dir string) *templateVersion {
	for i := range r.Versions {
		if r.Versions[i].DirName == dir {
			return &r.Versions[i]
		}
	}
	return nil
}

// Store is the directory of local templates. Several processes may use it concurrently.
type Store struct {
	dir       string
	imageTool hv.ImageDriver
}

// Open opens or creates the store and removes what killed commands left.
func Open(dir string, images hv.ImageDriver) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open local template store: %w", err)
	}
	l := &Store{dir: dir, imageTool: images}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open local template store: %w", err)
	}
	for _, item := range list {
		if !isLeftover(item) {
			continue
		}
		if err := l.removeLeftover(item.Name()); err != nil {
			return nil, fmt.Errorf("open local template store: %w", err)
		}
	}
	return l, nil
}

// isLeftover reports whether something may have been left by a killed command. Interrupted pulls are
// resumed, and are leftovers only after pullKept.
func isLeftover(item fs.DirEntry) bool {
	name := item.Name()
	if strings.HasPrefix(name, pullPrefix) {
		info, err := item.Info()
		return err == nil && time.Since(info.ModTime()) > pullKept
	}
	return item.IsDir() && (strings.HasPrefix(name, newPrefix) || strings.HasPrefix(name, gonePrefix))
}

// lockFileName returns the name of the file that the command working on a leftover locks. That of a pull
// is next to the directory, which may be removed while the lock is held.
func lockFileName(name string) string {
	switch {
	case !strings.HasPrefix(name, pullPrefix):
		return filepath.Join(name, lockFile)
	case strings.HasSuffix(name, lockSuffix):
		return name
	default:
		return name + lockSuffix
	}
}

// removeLeftover removes a leftover unless the command that makes it still runs.
func (l *Store) removeLeftover(name string) error {
	busy := errors.New("busy")
	lock, err := datadir.LockFile(filepath.Join(l.dir, lockFileName(name)), busy)
	if errors.Is(err, busy) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Discard()
	if lockFileName(name) == name {
		return nil
	}
	return os.RemoveAll(filepath.Join(l.dir, name))
}

// List returns every template, ordered by name. Unreadable ones are left out; the error names them
// and is returned together with the other templates.
func (l *Store) List() ([]Template, error) {
	list, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("list local templates: %w", err)
	}
	vms := []Template{}
	var bad []error
	for _, item := range list {
		if !uuidForm.MatchString(item.Name()) {
			continue
		}
		vm, err := l.showTemplate(item.Name())
		if err != nil {
			bad = append(bad, fmt.Errorf("template %s: %w", item.Name(), withoutPaths(err)))
			continue
		}
		vms = append(vms, vm)
	}
	slices.SortFunc(vms, func(a, b Template) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return vms, errors.Join(bad...)
}

// Find returns the template with that ID or, when only one has it, with that name.
func (l *Store) Find(name string) (Template, error) {
	if id := strings.ToLower(name); uuidForm.MatchString(id) {
		if _, err := os.Stat(filepath.Join(l.dir, id, recordFile)); err == nil {
			return l.showTemplate(id)
		}
	}
	vms, err := l.List()
	found := slices.DeleteFunc(vms, func(vm Template) bool { return vm.Name != name })
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		if err != nil {
			return Template{}, err
		}
		return Template{}, farm.Errorf(farm.CodeNotFound, "Local template %q not found; see: buildnode vm list", name)
	}
	ids := make([]string, len(found))
	for i, vm := range found {
		ids[i] = vm.ID
	}
	return Template{}, farm.Refused("%d local templates have the name %q; use an ID: %s", len(ids), name,
		strings.Join(ids, ", "))
}

func (l *Store) readTemplate(id string) (templateRecord, config, error) {
	var r templateRecord
	raw, err := os.ReadFile(filepath.Join(l.dir, id, recordFile))
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		return r, config{}, err
	}
	if r.ID != id || r.findVersion(r.CurrentDir) == nil || !filepath.IsLocal(r.CurrentDir) {
		return r, config{}, errors.New("the template record is damaged")
	}
	raw, err = os.ReadFile(filepath.Join(l.dir, id, r.CurrentDir, configFile))
	if err != nil {
		return r, config{}, err
	}
	c, err := parseConfig(raw)
	return r, c, err
}

// writeRecord stores the record in the directory with that name.
func (l *Store) writeRecord(dir string, r templateRecord) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return datadir.WriteFile(filepath.Join(l.dir, dir, recordFile), append(raw, '\n'))
}

func (l *Store) showTemplate(id string) (Template, error) {
	r, c, err := l.readTemplate(id)
	if err != nil {
		return Template{}, err
	}
	v := r.findVersion(r.CurrentDir)
	vm := Template{
		ID: r.ID, Name: r.Name, Arch: r.Arch, OS: c.parsed.OS, Created: r.Created,
		CPUs: c.cpus(), MemoryMB: c.memoryMB(),
		Firmware: c.firmware(), SizeBytes: host.AllocatedBytes(filepath.Join(l.dir, id)),
		Tag: v.Tag, ContentID: v.ContentID, Disks: []Disk{},
	}
	if v.hasChanged(l.versionDir(id, *v)) {
		vm.ContentID = ""
	}
	vm.NetworkMode, vm.Ports = c.network()
	for _, d := range c.parsed.HardDrives {
		vm.Disks = append(vm.Disks, Disk{
			FileName: d.File, Format: d.Format,
			SizeBytes: host.AllocatedBytes(filepath.Join(l.dir, id, r.CurrentDir, filepath.Base(d.File))),
		})
	}
	return vm, nil
}

// lockTemplate locks a template, so that its files may be changed or read.
func (l *Store) lockTemplate(id string) (*datadir.Lock, error) {
	return datadir.LockFile(filepath.Join(l.dir, id, lockFile),
		farm.Refused("Template %s is in use by another command; try again when it has ended", id))
}

// Modify changes a template's settings.
func (l *Store) Modify(id string, s Settings) (Template, error) {
	if err := s.check(); err != nil {
		return Template{}, err
	}
	lock, err := l.lockTemplate(id)
	if err != nil {
		return Template{}, err
	}
	defer lock.Release()
	r, c, err := l.readTemplate(id)
	if err != nil {
		return Template{}, fmt.Errorf("template %s: %w", id, withoutPaths(err))
	}
	c.apply(s)
	if s.Name != "" {
		r.Name = s.Name
	}
	if s.Arch != "" {
		r.Arch = s.Arch
	}
	raw, err := c.encode()
	if err != nil {
		return Template{}, err
	}
	// The record first: a version that is wrongly marked as changed does no harm.
	r.findVersion(r.CurrentDir).ContentID = ""
	if err := l.writeRecord(id, r); err != nil {
		return Template{}, fmt.Errorf("modify template: %w", withoutPaths(err))
	}
	if err := datadir.WriteFile(filepath.Join(l.dir, id, r.CurrentDir, configFile), raw); err != nil {
		return Template{}, fmt.Errorf("modify template: %w", withoutPaths(err))
	}
	return l.showTemplate(id)
}

// Delete removes a template with all its files.
func (l *Store) Delete(id string) error {
	lock, err := l.lockTemplate(id)
	if err != nil {
		return err
	}
	defer lock.Release()
	gone := filepath.Join(l.dir, gonePrefix+id)
	if err := os.Rename(filepath.Join(l.dir, id), gone); err != nil {
		return fmt.Errorf("delete template: %w", withoutPaths(err))
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("delete template: %w", withoutPaths(err))
	}
	return nil
}
