package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Finder finds packages file by file, for callers that store the content of each file: it decides
// which files are wanted, and reads one at a time. It is safe for concurrent use.
type Finder struct {
	root    fs.FS
	claims  *patternTable
	options Options
}

// NewFinder creates one for a tree that describes entries without following links, as those of
// Directory and Machine do.
func NewFinder(root fs.FS, o Options) *Finder {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.FileTime <= 0 {
		o.FileTime = time.Minute
	}
	o.Limits = o.Limits.orUsual()
	return &Finder{root: root, claims: newPatternTable(o.Extractors), options: o}
}

// Names decides by base name which files may be wanted, in any tree.
type Names struct{ claims *patternTable }

// NewNames creates one.
func NewNames(extractors []Extractor) *Names { return &Names{newPatternTable(extractors)} }

// Want reports whether a file of that name may be wanted. It is cheap, and true for any possible
// program: only the permissions of the file decide that.
func (n *Names) Want(base string) bool {
	if _, ok := n.claims.byName[base]; ok {
		return true
	}
	if dot := strings.LastIndexByte(base, '.'); dot >= 0 {
		if _, ok := n.claims.byExtension[lower(base[dot:])]; ok {
			return true
		}
	}
	return len(n.claims.programs) > 0 && asProgram(base) != noProgram
}

// Wanted is a wanted file. Its path begins at the root of the tree, without a slash.
type Wanted struct {
	Path string
	by   []int
	link bool
}

// mostWanted is the maximum number of files in a listing.
const mostWanted = 1_000_000

// Listing is the result of a walk.
type Listing struct {
	Wanted   []Wanted // in the order of paths
	Warnings []Warning
	Skipped  []Warning
	Files    int // entries other than directories
	Folders  int
	Unread   int // directories that could not be listed
	Left     int // wanted files above the limit
}

// Walk lists the wanted files below a directory of the tree; "." is its root. It fails when that is
// not a directory or ctx ends.
func (f *Finder) Walk(ctx context.Context, from string) (*Listing, error) {
	info, err := lstat(f.root, from)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	if err != nil {
		return nil, fmt.Errorf("looking through %s: %w", shown(from), err)
	}
	p := &progress{tell: f.options.Progress}
	defer p.start()()
	w := newWalk(&reading{root: f.root, claims: f.claims, options: f.options, report: p})
	if from != "." {
		w.waiting = []dirTask{{in: path.Dir(from), entry: fs.FileInfoToDirEntry(named{info, path.Base(from)})}}
	}
	var out Listing
	w.read = func(_ context.Context, found wanted) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(out.Wanted) == mostWanted {
			out.Left++
			return
		}
		out.Wanted = append(out.Wanted, Wanted{found.path, found.by, found.link})
	}
	if err := w.run(ctx, f.options.Workers); err != nil {
		return nil, fmt.Errorf("looking through %s: %w", shown(from), err)
	}
	slices.SortFunc(out.Wanted, func(a, b Wanted) int { return cmp.Compare(a.Path, b.Path) })
	out.Warnings, out.Skipped, out.Files, out.Folders, out.Unread = w.warnings.cut(), w.skipped.cut(), w.files,
		w.dirs, w.unread+w.unlisted
	return &out, nil
}

// named is the description of a file, under the name of the request.
type named struct {
	fs.FileInfo
	name string
}

func (n named) Name() string { return n.name }

// At reports whether a file is wanted in its current state. A missing file is not, nor one that is
// only reached by a link: a walk follows none.
func (f *Finder) At(name string) (Wanted, bool) {
	info, err := lstat(f.root, name)
	if err != nil {
		return Wanted{}, false
	}
	base := path.Base(name)
	switch mode := info.Mode(); {
	case mode.IsRegular():
		b := &batch{walk: &walk{claims: f.claims}}
		by := f.claims.named(name, base, false)
		if b.program(name, fs.FileInfoToDirEntry(named{info, base})) {
			by = append(by, f.claims.programs...)
		}
		return Wanted{name, by, false}, len(by) > 0 && !f.behindLink(name)
	case mode&fs.ModeSymlink != 0:
		by := f.claims.named(name, base, true)
		return Wanted{name, by, true}, len(by) > 0 && !f.behindLink(name)
	default:
		return Wanted{}, false
	}
}

// Found is the content of a file.
type Found struct {
	Packages []Package // each name and version of a kind once
	Warnings []Warning
}

// Read reads a file.
func (f *Finder) Read(ctx context.Context, w Wanted) Found {
	r := reading{root: f.root, claims: f.claims, options: f.options}
	o := r.file(ctx, wanted{path: w.Path, by: w.by, link: w.link})
	return Found{Packages: merge(o.packages), Warnings: o.warnings}
}

// FileStamp identifies a file with its content, so that a caller can detect a change.
type FileStamp struct {
	Print   uint64    // hash of its size, number and times
	Changed time.Time // last change of its content, name or permissions, as far as the system reports it
}

// StampOf returns the current stamp of a path. It fails when nothing is there.
func (f *Finder) StampOf(name string) (FileStamp, error) {
	info, err := lstat(f.root, name)
	if err != nil {
		return FileStamp{}, err
	}
	changed, inode := times(info)
	h := uint64(14695981039346656037) // FNV-1a, of 64 bits
	for _, v := range [...]uint64{
		uint64(info.Size()), uint64(info.ModTime().UnixNano()), uint64(changed.UnixNano()), inode, uint64(info.Mode()),
	} {
		for range 8 {
			h = (h ^ v&0xff) * 1099511628211
			v >>= 8
		}
	}
	return FileStamp{Print: h, Changed: changed}, nil
}

// IsDir reports whether a path is currently a directory, and neither a link nor behind one.
func (f *Finder) IsDir(name string) bool {
	info, err := lstat(f.root, name)
	return err == nil && info.IsDir() && !f.behindLink(name)
}

// behindLink reports whether an ancestor of a path is a link.
func (f *Finder) behindLink(name string) bool {
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		if info, err := lstat(f.root, name[:i]); err != nil || !info.IsDir() {
			return true
		}
	}
	return false
}

func lstat(root fs.FS, name string) (fs.FileInfo, error) {
	if l, ok := root.(lstater); ok {
		return l.Lstat(name)
	}
	return fs.Stat(root, name)
}

// Denied reports whether this program lacks the permission.
func (w Warning) Denied() bool { return w.because(syscall.EACCES, syscall.EPERM) }

// Vanished reports whether the file was gone when it was read.
func (w Warning) Vanished() bool { return w.because(syscall.ENOENT, syscall.ENOTDIR) }

func (w Warning) because(reasons ...syscall.Errno) bool {
	return slices.ContainsFunc(reasons, func(e syscall.Errno) bool { return strings.HasSuffix(w.What, ": "+e.Error()) })
}
