package layout

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Directories below the base of a storage.
const (
	TemplatesDir   = "vm_dir"
	ImagesDir      = "images_dir"
	StateFileDir   = "state_file_dir"
	UploadDir      = "upload_dir"
	TrashDir       = "trash_dir"
	FilesDir       = "files"
	CentralLogsDir = "files/central-logs"
)

const (
	templateFile     = "template.json"
	maxTemplateBytes = 64 << 20 // bytes of a template.json
)

// Dir is the storage of one registry.
type Dir struct {
	*SafeDir
	base   string
	remote Remote // nil: the directory itself is the storage
}

// Open opens an existing storage for reading. It changes nothing on disk.
func Open(base string) (*Dir, error) {
	f, err := OpenSafeDir(base, Hooks{})
	if err != nil {
		return nil, err
	}
	if _, err := f.root.Stat(TemplatesDir); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not a registry storage: %w", base, err), f.Close())
	}
	d := &Dir{SafeDir: f, base: base}
	if err := d.checkStorageSchema(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

// Create opens a storage for writing and creates missing directories.
func Create(base string, hooks Hooks) (*Dir, error) {
	if err := os.MkdirAll(base, 0o750); err != nil {
		return nil, fmt.Errorf("create storage directory: %w", err)
	}
	f, err := OpenSafeDir(base, hooks)
	if err != nil {
		return nil, err
	}
	d := &Dir{SafeDir: f, base: base}
	if err := errors.Join(d.checkStorageSchema(), f.syncParent(base)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for _, name := range []string{TemplatesDir, ImagesDir, StateFileDir, UploadDir, TrashDir, CentralLogsDir} {
		if err := f.MkdirAll(name); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return d, nil
}

// syncParent makes the name of the storage itself durable. A parent that cannot be read was not created here.
func (f *SafeDir) syncParent(base string) error {
	parent, err := os.Open(filepath.Dir(base))
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open parent directory of the storage: %w", err)
	}
	f.AnnounceStep("base.dirsync")
	return errors.Join(f.Sync(parent), parent.Close())
}

// Base is the path that the storage was opened with.
func (d *Dir) Base() string { return d.base }

// CheckPresent returns nil if the storage is still at its path, else an error. Open files stay readable if the
// directory was moved away, or another one mounted over it.
func (d *Dir) CheckPresent() error {
	there, err := os.Stat(d.base)
	if err != nil {
		return fmt.Errorf("check the storage directory: %w", err)
	}
	here, err := d.root.Stat(".")
	if err != nil {
		return fmt.Errorf("check the storage directory: %w", err)
	}
	if !os.SameFile(there, here) {
		return fmt.Errorf("the storage directory %s was replaced by another one", d.base)
	}
	return nil
}

// DamagedTemplate describes data in the storage that cannot be served.
type DamagedTemplate struct {
	ID      string // directory below vm_dir
	Number  int    // version, -1 for the template as a whole
	Problem string
}

// Templates reads all templates in the order of their IDs. Damaged ones are left out and reported: only a
// vm_dir that cannot be read at all is an error.
func (d *Dir) Templates() ([]Template, []DamagedTemplate, error) {
	entries, err := d.ReadDir(TemplatesDir)
	if err != nil {
		return nil, nil, fmt.Errorf("read templates: %w", err)
	}
	entries = slices.DeleteFunc(entries,
		func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") || !e.IsDir() })
	all, errs := make([]Template, len(entries)), make([]error, len(entries))
	ForEachParallel(len(entries), func(i int) { all[i], errs[i] = d.Template(entries[i].Name()) })
	list := make([]Template, 0, len(all))
	var damaged []DamagedTemplate
	for i, err := range errs {
		if err != nil {
			damaged = append(damaged, DamagedTemplate{ID: entries[i].Name(), Number: -1, Problem: DescribeError(err)})
			continue
		}
		list = append(list, all[i])
	}
	return list, damaged, nil
}

// ForEachParallel calls do with 0 to n-1, in any order, several at a time, and returns when all are done. Reading
// thousands of small files concurrently keeps the disk busy.
func ForEachParallel(n int, do func(i int)) {
	var next atomic.Int64
	var work sync.WaitGroup
	for range min(n, 4*runtime.GOMAXPROCS(0)) {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	work.Wait()
}

// DescribeError describes why a template could not be read, in words for operators.
func DescribeError(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "it has no " + templateFile
	}
	return err.Error()
}

// Template reads one template. It returns fs.ErrNotExist when there is none.
func (d *Dir) Template(id string) (Template, error) {
	var t Template
	clean, ok := ParseID(id)
	if !ok || clean != id {
		return t, fmt.Errorf("directory name %q is not a UUID", id)
	}
	raw, err := d.readFile(path.Join(TemplatesDir, id, templateFile), d.maxTemplateBytes())
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, fmt.Errorf("%s: %w", templateFile, err)
	}
	if t.Schema > Schema {
		return t, fmt.Errorf("%w: %w", ErrNewer, schemas.Check(t.Schema))
	}
	if t.ID != id {
		return t, fmt.Errorf("%s has the ID %q of another template", templateFile, t.ID)
	}
	if err := t.Validate(); err != nil {
		return t, fmt.Errorf("%s: %w", templateFile, err)
	}
	t.internStrings()
	return t, nil
}

// ErrGenerationConflict is the failure of a compare-and-swap: the template on disk has another generation than the
// write expects.
var ErrGenerationConflict = errors.New("template was changed concurrently")

// ErrTemplateTooLarge is the failure to write a template with more versions and layers than a template.json may
// contain.
var ErrTemplateTooLarge = fmt.Errorf("%s would have more than %d bytes", templateFile, maxTemplateBytes)

func (d *Dir) maxTemplateBytes() int64 { return cmp.Or(d.hooks.MaxTemplateBytes, maxTemplateBytes) }

// SaveTemplate writes a template whose Gen is one more than that on disk; a new template has Gen 1. Its directory and
// the directories of its new versions must exist (see StageVersion).
func (d *Dir) SaveTemplate(t *Template) error {
	t.Schema = Schema
	if err := t.Validate(); err != nil {
		return fmt.Errorf("save template %s: %w", t.ID, err)
	}
	held, err := d.Template(t.ID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("save template %s: %w", t.ID, err)
	}
	if held.Gen != t.Gen-1 {
		return fmt.Errorf("template %s: %w (on disk %d, expected %d)", t.ID, ErrGenerationConflict, held.Gen, t.Gen-1)
	}
	raw, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return fmt.Errorf("encode template: %w", err)
	}
	if int64(len(raw)) >= d.maxTemplateBytes() { // it could not be read again
		return fmt.Errorf("save template %s: %w", t.ID, ErrTemplateTooLarge)
	}
	dir := path.Join(TemplatesDir, t.ID)
	if err := d.MkdirAll(dir); err != nil {
		return err
	}
	if d.remote != nil {
		return d.saveRemote(t, path.Join(dir, templateFile), append(raw, '\n'))
	}
	return d.WriteFile("template", path.Join(dir, templateFile), append(raw, '\n'))
}

// TrashTemplate moves a template's directory to the trash: one rename. stamp is the time in epoch
// nanoseconds.
func (d *Dir) TrashTemplate(id string, stamp int64) error {
	if _, ok := ParseID(id); !ok {
		return fmt.Errorf("%q is not a UUID", id)
	}
	target := TrashEntry{Stamp: stamp, OriginalName: id}
	for _, err := d.root.Stat(target.Path()); err == nil; _, err = d.root.Stat(target.Path()) {
		target.Stamp++ // deleted, pushed and deleted again within the clock's resolution
	}
	if d.remote != nil {
		if err := d.remote.TrashTemplate(id, target.Stamp); err != nil {
			return err
		}
	}
	return d.Rename("delete", path.Join(TemplatesDir, id), target.Path())
}

// LayerDir is the directory of layer files of a kind.
func LayerDir(kind string) string {
	if kind == KindState {
		return StateFileDir
	}
	return ImagesDir
}

// OpenLayer opens a layer file for reading.
func (d *Dir) OpenLayer(kind, name string) (*os.File, error) {
	if !ValidLayerName(name) {
		return nil, fmt.Errorf("%q is not the name of a layer file", name)
	}
	return d.root.Open(path.Join(LayerDir(kind), name))
}

// readFile reads a whole file of at most limit bytes.
func (d *Dir) readFile(name string, limit int64) ([]byte, error) {
	f, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return raw, nil
}

func sortEntries(entries []fs.DirEntry) {
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
}
