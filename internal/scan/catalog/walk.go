package catalog

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"sync"
)

// Limits of a walk: a damaged or hostile file system may hold directories without end.
const (
	maxPath  = 8 << 10 // bytes
	maxDepth = 512     // directories
)

// wanted is a file that an extractor wants.
type wanted struct {
	path  string
	entry fs.DirEntry
	by    []int // indexes of extractors
	link  bool
}

// dirTask is a directory that was found and not read yet.
type dirTask struct {
	in    string      // path of the parent directory
	entry fs.DirEntry // nil for the root
	depth int
}

// path is computed when it is needed: those of many directories that wait are long.
func (f dirTask) path() string {
	if f.entry == nil {
		return "."
	}
	return join(f.in, f.entry.Name())
}

func join(in, name string) string {
	if in == "." {
		return name
	}
	return in + "/" + name
}

// walk lists a tree with several goroutines, and reads the wanted files. Each takes what was found
// last, files before directories: so the queue stays small, and a file is read when its neighbors
// have just been read, which a compressed disk keeps decoded.
type walk struct {
	root   fs.FS
	claims *patternTable
	leave  func(path string) bool
	read   func(context.Context, wanted)
	begin  func()
	report *progress

	mu      sync.Mutex
	more    *sync.Cond
	waiting []dirTask
	wanted  []wanted
	busy    int  // goroutines that read a directory
	stop    bool // nothing more is read
	numbers bool // the file system numbers its directories
	seen    map[uint64]struct{}

	warnings *boundedSet[Warning]
	skipped  *boundedSet[Warning]
	files    int
	dirs     int
	unread   int // directories that were not read, or only in part
	listed   int // directories that were added to the list
	unlisted int // directories that were not, because of the limit
}

func newWalk(r *reading) *walk {
	w := &walk{
		root: r.root, claims: r.claims, leave: r.options.Leave, begin: r.options.begin, report: r.report,
		seen:     map[uint64]struct{}{},
		warnings: newWarnings(r.options.Limits), skipped: newWarnings(r.options.Limits),
		read: r.read,
	}
	w.more = sync.NewCond(&w.mu)
	w.waiting = []dirTask{{}}
	if info, err := fs.Stat(r.root, "."); err == nil {
		var id uint64
		id, w.numbers = number(info)
		w.seen[id] = struct{}{}
	}
	return w
}

// run walks the tree.
func (w *walk) run(ctx context.Context, workers int) error {
	release := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stop = true
		w.more.Broadcast()
	})
	defer release()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			w.begin()
			w.work(ctx)
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// work reads files and directories until there are none.
func (w *walk) work(ctx context.Context) {
	b := &batch{walk: w}
	for w.wait() {
		if f, ok := w.file(); ok {
			w.read(ctx, f)
		} else if f, ok := w.folder(); ok {
			b.read(f)
			w.done(b)
		}
	}
}

// wait waits until there is something to read, and returns false when there never will be.
func (w *walk) wait() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.waiting)+len(w.wanted) == 0 && w.busy > 0 && !w.stop {
		w.more.Wait()
	}
	if w.stop || len(w.waiting)+len(w.wanted) == 0 {
		w.more.Broadcast()
		return false
	}
	return true
}

// file takes a wanted file, if there is one.
func (w *walk) file() (wanted, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return pop(&w.wanted)
}

// folder takes a directory, if there is one. The caller passes it to done.
func (w *walk) folder() (dirTask, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := pop(&w.waiting)
	if ok {
		w.busy++
	}
	return f, ok
}

// pop removes the last element of a list, and keeps no reference to it.
func pop[T any](list *[]T) (last T, ok bool) {
	n := len(*list) - 1
	if n < 0 {
		return last, false
	}
	var none T
	last, (*list)[n] = (*list)[n], none
	*list = (*list)[:n]
	return last, true
}

// done adds what a goroutine found in a directory.
func (w *walk) done(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	for _, f := range b.dirs {
		if w.listed++; w.listed > maxFolders {
			w.unlisted++
			continue
		}
		w.waiting = append(w.waiting, f)
	}
	w.wanted = append(w.wanted, b.found...)
	for _, m := range b.warnings {
		w.warnings.add(m)
	}
	for _, m := range b.skipped {
		w.skipped.add(m)
	}
	w.files += b.files
	w.unread += b.unread
	w.dirs++
	w.report.files.Add(int64(b.files))
	*b = batch{walk: w, dirs: b.dirs[:0], found: b.found[:0]}
	w.more.Broadcast()
}

// warn records what could not be read.
func (w *walk) warn(warnings []Warning) {
	if len(warnings) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range warnings {
		w.warnings.add(m)
	}
}

// number returns the inode number of an entry, where there is one.
func number(info fs.FileInfo) (uint64, bool) {
	sys, ok := info.Sys().(interface{ ID() uint64 })
	if !ok {
		return 0, false
	}
	return sys.ID(), true
}

// first reports whether a directory has not been read yet under another name: in a damaged file
// system directories may contain each other.
func (w *walk) first(e fs.DirEntry) bool {
	if !w.numbers {
		return true
	}
	info, err := e.Info()
	if err != nil {
		return true
	}
	id, ok := number(info)
	if !ok {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, again := w.seen[id]; again {
		return false
	}
	w.seen[id] = struct{}{}
	return true
}

// batch is what one goroutine finds in one directory.
type batch struct {
	walk     *walk
	dirs     []dirTask
	found    []wanted
	warnings []Warning
	skipped  []Warning
	files    int
	unread   int
}

// read lists a directory.
func (b *batch) read(f dirTask) {
	at := f.path()
	entries, err := readDir(b.walk.root, f, at)
	if skip := (*SkipDirError)(nil); errors.As(err, &skip) {
		b.skipped = append(b.skipped, Warning{Path: shown(at), What: skip.Why})
		return
	}
	if err != nil {
		b.warnings = append(b.warnings, Warning{Path: shown(at), What: "the directory cannot be listed: " + bare(err)})
	}
	impossible := false
	for _, e := range entries {
		name := e.Name()
		if !fs.ValidPath(name) || name == "." || path.Base(name) != name {
			impossible = true
			continue
		}
		b.entry(dirTask{in: at, entry: e, depth: f.depth + 1}, join(at, name))
	}
	if impossible {
		b.warnings = append(b.warnings, Warning{Path: shown(at), What: "it holds an entry with an impossible name"})
	}
	if err != nil || impossible {
		b.unread++
	}
}

// entry handles one entry of a directory.
func (b *batch) entry(f dirTask, full string) {
	e := f.entry
	switch mode := e.Type(); {
	case mode.IsDir():
		b.folder(f, full)
	case mode.IsRegular():
		b.files++
		by := b.walk.claims.named(full, e.Name(), false)
		if b.program(full, e) {
			by = append(by, b.walk.claims.programs...)
		}
		if len(by) > 0 {
			b.found = append(b.found, wanted{path: full, entry: alone(e), by: by})
		}
	case mode&fs.ModeSymlink != 0:
		b.files++
		if by := b.walk.claims.named(full, e.Name(), true); len(by) > 0 {
			b.found = append(b.found, wanted{path: full, entry: alone(e), by: by, link: true})
		}
	case mode&fs.ModeIrregular != 0:
		b.files++
		if _, err := e.Info(); err != nil {
			b.lost(full, err)
		}
	default:
		b.files++ // devices, pipes, sockets: they have no content
	}
}

// lost records an entry whose type cannot be determined. One that was removed since is ignored.
func (b *batch) lost(full string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		b.warnings = append(b.warnings, Warning{Path: shown(full), What: "what it is cannot be read: " + bare(err)})
		b.unread++
	}
}

// alone copies an entry so that it does not keep the others of its directory in memory, which may
// be many.
func alone(e fs.DirEntry) fs.DirEntry {
	if a, ok := e.(interface{ Alone() fs.DirEntry }); ok {
		return a.Alone()
	}
	return e
}

// folder adds a directory to the list.
func (b *batch) folder(f dirTask, full string) {
	switch {
	case b.walk.leave != nil && b.walk.leave(full):
		b.skipped = append(b.skipped, Warning{Path: shown(full), What: "left out as asked"})
	case len(full) > maxPath || f.depth > maxDepth:
		b.warnings = append(b.warnings, Warning{Path: shown(full), What: "the directory is too deep and was not read"})
		b.unread++
	case !b.walk.first(f.entry):
		b.warnings = append(b.warnings,
			Warning{Path: shown(full), What: "the directory was already read under another name", Odd: true})
	default:
		f.entry = alone(f.entry)
		b.dirs = append(b.dirs, f)
	}
}

// program reports whether an entry may be a program. Permissions are read only for those whose name
// allows it.
func (b *batch) program(full string, e fs.DirEntry) bool {
	if len(b.walk.claims.programs) == 0 {
		return false
	}
	name := asProgram(e.Name())
	if name == noProgram {
		return false
	}
	info, err := e.Info()
	if err != nil {
		b.lost(full, err)
		return false
	}
	return info.Size() >= minProgram && (name == mostlyIs || info.Mode().Perm()&0o111 != 0)
}

// readDir lists a directory by its entry where the file system can, by its path elsewhere.
func readDir(root fs.FS, f dirTask, at string) ([]fs.DirEntry, error) {
	if d, ok := f.entry.(interface{ ReadDir() ([]fs.DirEntry, error) }); ok {
		return d.ReadDir()
	}
	return fs.ReadDir(root, at)
}
