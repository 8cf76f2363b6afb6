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

	"golang.org/x/sync/semaphore"
)

// Finder finds packages file by file, for callers that store the content of each file: it decides
// which files are wanted, and reads one at a time. It is safe for concurrent use.
type Finder struct {
	root         fs.FS
	patterns     *patternTable
	options      Options
	memoryBudget *semaphore.Weighted // of large files that are in memory
}

// NewFinder creates one for a tree that describes entries without following links, as those of
// Directory and Machine do.
func NewFinder(root fs.FS, o Options) *Finder {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.FileTimeout <= 0 {
		o.FileTimeout = time.Minute
	}
	o.Limits = o.Limits.withDefaults()
	return &Finder{
		root: root, patterns: newPatternTable(o.Extractors), options: o,
		memoryBudget: semaphore.NewWeighted(memoryBudgetBytes),
	}
}

// NameFilter decides by base name which files may be wanted, in any tree.
type NameFilter struct{ patterns *patternTable }

// NewNameFilter creates one.
func NewNameFilter(extractors []Extractor) *NameFilter {
	return &NameFilter{newPatternTable(extractors)}
}

// Matches reports whether a file of that name may be wanted. It is cheap, and true for any possible
// program: only the permissions of the file decide that.
func (n *NameFilter) Matches(base string) bool {
	if _, ok := n.patterns.byName[base]; ok {
		return true
	}
	if dot := strings.LastIndexByte(base, '.'); dot >= 0 {
		if _, ok := n.patterns.byExtension[toLower(base[dot:])]; ok {
			return true
		}
	}
	return len(n.patterns.programExtractors) > 0 && classifyProgram(base) != notProgram
}

// WantedFile is a wanted file. Its path begins at the root of the tree, without a slash.
type WantedFile struct {
	Path             string
	extractorIndexes []int
	isSymlink        bool
}

// maxWantedFiles is the maximum number of files in a listing.
const maxWantedFiles = 1_000_000

// Listing is the result of a walk.
type Listing struct {
	Wanted     []WantedFile // in the order of paths
	Warnings   []Warning
	Skipped    []Warning
	Files      int // entries other than directories
	Dirs       int
	UnreadDirs int // directories that could not be listed
	Omitted    int // wanted files above the limit
}

// Walk lists the wanted files below a directory of the tree; "." is its root. It fails when that is
// not a directory or ctx ends.
func (f *Finder) Walk(ctx context.Context, from string) (*Listing, error) {
	info, err := lstat(f.root, from)
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", displayPath(from), err)
	}
	p := &progress{report: f.options.Progress}
	defer p.start()()
	w := newWalk(&scanRun{root: f.root, patterns: f.patterns, options: f.options, progress: p})
	if from != "." {
		w.pendingDirs = []dirTask{
			{parent: path.Dir(from), entry: fs.FileInfoToDirEntry(namedInfo{info, path.Base(from)})},
		}
	}
	var out Listing
	w.readFile = func(_ context.Context, found wantedFile) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(out.Wanted) == maxWantedFiles {
			out.Omitted++
			return
		}
		out.Wanted = append(out.Wanted, WantedFile{found.path, found.extractorIndexes, found.isSymlink})
	}
	if err := w.run(ctx, f.options.Workers); err != nil {
		return nil, fmt.Errorf("list %s: %w", displayPath(from), err)
	}
	slices.SortFunc(out.Wanted, func(a, b WantedFile) int { return cmp.Compare(a.Path, b.Path) })
	out.Warnings, out.Skipped, out.Files, out.Dirs, out.UnreadDirs = w.warnings.trim(), w.skipped.trim(), w.fileCount,
		w.dirCount, w.unreadDirs+w.unlistedDirs
	return &out, nil
}

// namedInfo is the description of a file, under the name of the request.
type namedInfo struct {
	fs.FileInfo
	name string
}

func (n namedInfo) Name() string { return n.name }

// WantedAt reports whether a file is wanted in its current state. A missing file is not, nor one that is
// only reached by a link: a walk follows none.
func (f *Finder) WantedAt(name string) (WantedFile, bool) {
	info, err := lstat(f.root, name)
	if err != nil {
		return WantedFile{}, false
	}
	base := path.Base(name)
	switch mode := info.Mode(); {
	case mode.IsRegular():
		by := f.patterns.matchFile(name, info)
		return WantedFile{name, by, false}, len(by) > 0 && !f.hasLinkedAncestor(name)
	case mode&fs.ModeSymlink != 0:
		by := f.patterns.matchName(name, base, true)
		return WantedFile{name, by, true}, len(by) > 0 && !f.hasLinkedAncestor(name)
	default:
		return WantedFile{}, false
	}
}

// FileResult is the content of a file.
type FileResult struct {
	Packages []Package // each name and version of a kind once
	Warnings []Warning
}

// ReadFile reads a file.
func (f *Finder) ReadFile(ctx context.Context, w WantedFile) FileResult {
	r := scanRun{patterns: f.patterns, options: f.options, memoryBudget: f.memoryBudget}
	file := wantedFile{path: w.Path, extractorIndexes: w.extractorIndexes, isSymlink: w.isSymlink}
	if info, err := lstat(f.root, w.Path); err == nil {
		file.entry = fs.FileInfoToDirEntry(info)
	}
	release, err := r.acquireMemory(ctx, &file)
	if err != nil {
		return FileResult{Warnings: []Warning{{Path: displayPath(w.Path), Message: err.Error()}}}
	}
	defer release()
	file.entry = nil // the file is opened by its path
	o := r.extractFile(ctx, f.root, file)
	if !f.options.Development {
		o.packages = slices.DeleteFunc(o.packages, func(p Package) bool { return p.Development })
	}
	return FileResult{Packages: Merge(o.packages), Warnings: o.warnings}
}

// FileStamp identifies a file with its content, so that a caller can detect a change.
type FileStamp struct {
	Hash      uint64    // hash of its size, number and times
	ChangedAt time.Time // last change of its content, name or permissions, as far as the system reports it
}

// StampOf returns the current stamp of a path. It fails when nothing is there.
func (f *Finder) StampOf(name string) (FileStamp, error) {
	info, err := lstat(f.root, name)
	if err != nil {
		return FileStamp{}, err
	}
	changed, inode := changeTimeAndInode(info)
	h := uint64(14695981039346656037) // FNV-1a, of 64 bits
	for _, v := range [...]uint64{
		uint64(info.Size()), uint64(info.ModTime().UnixNano()), uint64(changed.UnixNano()), inode, uint64(info.Mode()),
	} {
		for range 8 {
			h = (h ^ v&0xff) * 1099511628211
			v >>= 8
		}
	}
	return FileStamp{Hash: h, ChangedAt: changed}, nil
}

// IsDir reports whether a path is currently a directory, and neither a link nor behind one.
func (f *Finder) IsDir(name string) bool {
	info, err := lstat(f.root, name)
	return err == nil && info.IsDir() && !f.hasLinkedAncestor(name)
}

// hasLinkedAncestor reports whether an ancestor of a path is a link.
func (f *Finder) hasLinkedAncestor(name string) bool {
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
func (w Warning) Denied() bool { return w.hasErrno(syscall.EACCES, syscall.EPERM) }

// Vanished reports whether the file was gone when it was read.
func (w Warning) Vanished() bool { return w.hasErrno(syscall.ENOENT, syscall.ENOTDIR) }

func (w Warning) hasErrno(reasons ...syscall.Errno) bool {
	return slices.ContainsFunc(reasons,
		func(e syscall.Errno) bool { return strings.HasSuffix(w.Message, ": "+e.Error()) })
}
