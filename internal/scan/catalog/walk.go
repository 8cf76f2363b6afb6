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
	maxPathBytes = 8 << 10 // bytes
	maxDirDepth  = 512     // directories
)

// wantedFile is a file that an extractor wants.
type wantedFile struct {
	path             string
	entry            fs.DirEntry
	extractorIndexes []int // indexes of extractors
	isSymlink        bool
	hasMemory        bool      // it has its part of the memory budget
	step             *fileStep // where its result is kept; nil: nowhere
}

// dirTask is a directory that was found and not read yet.
type dirTask struct {
	parent string      // path of the parent directory
	entry  fs.DirEntry // nil for the root
	depth  int
	step   *dirStep // where its listing is kept; nil: nowhere
}

// path is computed when it is needed: those of many directories that wait are long.
func (f dirTask) path() string {
	if f.entry == nil {
		return "."
	}
	return joinPath(f.parent, f.entry.Name())
}

func joinPath(in, name string) string {
	if in == "." {
		return name
	}
	return in + "/" + name
}

// walk lists a tree with several goroutines, and reads the wanted files. Each takes what was found
// last, files before directories: so the queue stays small, and a file is read when its neighbors
// have just been read, which a compressed disk keeps decoded.
type walk struct {
	root          fs.FS
	patterns      *patternTable
	skipDir       func(path string) bool
	exclude       func(path string) bool
	readFile      func(context.Context, wantedFile)
	steps         *Steps           // nil: none
	addKept       func([]keptFile) // with steps
	onWorkerStart func()
	progress      *progress

	mu          sync.Mutex
	moreWork    *sync.Cond
	pendingDirs []dirTask
	wantedFiles []wantedFile
	busyWorkers int  // goroutines that read a directory
	stopped     bool // nothing more is read
	hasInodes   bool // the file system numbers its directories
	seenInodes  map[uint64]struct{}

	warnings     *boundedSet[Warning]
	skipped      *boundedSet[Warning]
	fileCount    int
	dirCount     int
	excluded     int // files and directories that the options exclude
	unreadDirs   int // directories that were not read, or only in part
	listedDirs   int // directories that were added to the list
	unlistedDirs int // directories that were not, because of the limit
}

func newWalk(r *scanRun) *walk {
	w := &walk{
		root: r.root, patterns: r.patterns, skipDir: r.options.SkipDir,
		exclude: r.options.Exclude, onWorkerStart: r.options.workerStarted,
		progress:   r.progress,
		seenInodes: map[uint64]struct{}{},
		warnings:   newWarnings(r.options.Limits), skipped: newWarnings(r.options.Limits),
		readFile: r.readFile, steps: r.options.Steps,
	}
	w.moreWork = sync.NewCond(&w.mu)
	w.pendingDirs = []dirTask{{}}
	if w.steps != nil {
		w.pendingDirs[0].step = &w.steps.root
	}
	if info, err := fs.Stat(r.root, "."); err == nil {
		var id uint64
		id, w.hasInodes = inodeNumber(info)
		w.seenInodes[id] = struct{}{}
	}
	return w
}

// run walks the tree.
func (w *walk) run(ctx context.Context, workers int) error {
	release := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopped = true
		w.moreWork.Broadcast()
	})
	defer release()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			w.onWorkerStart()
			w.runWorker(ctx)
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// runWorker reads files and directories until there are none.
func (w *walk) runWorker(ctx context.Context) {
	b := &dirResult{walk: w}
	for w.waitForWork() {
		if f, ok := w.nextFile(); ok {
			w.readFile(ctx, f)
		} else if f, ok := w.nextDir(); ok {
			if f.step != nil {
				b.listStep(f)
			} else {
				b.list(w.root, f)
			}
			w.dirDone(b)
		}
	}
}

// waitForWork waits until there is something to read, and returns false when there never will be.
func (w *walk) waitForWork() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pendingDirs)+len(w.wantedFiles) == 0 && w.busyWorkers > 0 && !w.stopped {
		w.moreWork.Wait()
	}
	if w.stopped || len(w.pendingDirs)+len(w.wantedFiles) == 0 {
		w.moreWork.Broadcast()
		return false
	}
	return true
}

// nextFile takes a wanted file, if there is one.
func (w *walk) nextFile() (wantedFile, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return popLast(&w.wantedFiles)
}

// nextDir takes a directory, if there is one. The caller passes its result to dirDone.
func (w *walk) nextDir() (dirTask, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := popLast(&w.pendingDirs)
	if ok {
		w.busyWorkers++
	}
	return f, ok
}

// popLast removes the last element of a list, and keeps no reference to it.
func popLast[T any](list *[]T) (last T, ok bool) {
	n := len(*list) - 1
	if n < 0 {
		return last, false
	}
	var none T
	last, (*list)[n] = (*list)[n], none
	*list = (*list)[:n]
	return last, true
}

// dirDone adds what a goroutine found in a directory.
func (w *walk) dirDone(b *dirResult) {
	if len(b.kept) > 0 {
		w.addKept(b.kept)
		clear(b.kept)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busyWorkers--
	for _, f := range b.dirs {
		if w.listedDirs++; w.listedDirs > maxDirs {
			w.unlistedDirs++
			continue
		}
		w.pendingDirs = append(w.pendingDirs, f)
	}
	w.wantedFiles = append(w.wantedFiles, b.wantedFiles...)
	for _, m := range b.warnings {
		w.warnings.add(m)
	}
	for _, m := range b.skipped {
		w.skipped.add(m)
	}
	w.fileCount += b.fileCount
	w.unreadDirs += b.unreadDirs
	w.excluded += b.excluded
	w.dirCount++
	w.progress.fileCount.Add(int64(b.fileCount))
	*b = dirResult{walk: w, dirs: b.dirs[:0], wantedFiles: b.wantedFiles[:0], kept: b.kept[:0]}
	w.moreWork.Broadcast()
}

// addWarnings records what could not be read.
func (w *walk) addWarnings(warnings []Warning) {
	if len(warnings) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range warnings {
		w.warnings.add(m)
	}
}

// inodeNumber returns the inode number of an entry, where there is one.
func inodeNumber(info fs.FileInfo) (uint64, bool) {
	sys, ok := info.Sys().(interface{ ID() uint64 })
	if !ok {
		return 0, false
	}
	return sys.ID(), true
}

// firstVisit reports whether a directory has not been read yet under another name: in a damaged file
// system directories may contain each other.
func (w *walk) firstVisit(e fs.DirEntry) bool {
	if !w.hasInodes {
		return true
	}
	info, err := e.Info()
	if err != nil {
		return true
	}
	id, ok := inodeNumber(info)
	return !ok || w.visit(id)
}

// visit reports whether the directory with an inode number has not been read yet.
func (w *walk) visit(id uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, again := w.seenInodes[id]; again {
		return false
	}
	w.seenInodes[id] = struct{}{}
	return true
}

// dirResult is what one goroutine finds in one directory.
type dirResult struct {
	walk        *walk
	dirs        []dirTask
	wantedFiles []wantedFile
	warnings    []Warning
	skipped     []Warning
	fileCount   int
	excluded    int
	unreadDirs  int

	kept     []keptFile  // wanted files whose results are those of an earlier scan
	step     *dirStep    // that the listing is recorded in; nil: it is not
	oldFiles []*fileStep // of the step in an earlier scan
	oldDirs  []*dirStep
}

// list lists a directory of a tree.
func (b *dirResult) list(root fs.FS, f dirTask) {
	at := f.path()
	entries, err := readDir(root, f, at)
	if skip := (*SkipDirError)(nil); errors.As(err, &skip) {
		b.skipped = append(b.skipped, Warning{Path: displayPath(at), Message: skip.Reason})
		return
	}
	if err != nil {
		b.warnings = append(b.warnings,
			Warning{Path: displayPath(at), Message: "the directory cannot be listed: " + errorWithoutPath(err)})
	}
	impossible := false
	for _, e := range entries {
		name := e.Name()
		if !isValidPath(name) || name == "." || path.Base(name) != name {
			impossible = true
			continue
		}
		b.addEntry(dirTask{parent: at, entry: e, depth: f.depth + 1}, joinPath(at, name))
	}
	if impossible {
		b.warnings = append(b.warnings,
			Warning{Path: displayPath(at), Message: "it holds an entry with an impossible name"})
	}
	if err != nil || impossible {
		b.unreadDirs++
	}
}

// addEntry handles one entry of a directory.
func (b *dirResult) addEntry(f dirTask, full string) {
	e := f.entry
	if b.walk.exclude != nil && b.walk.exclude(full) {
		b.excluded++
		return
	}
	switch mode := e.Type(); {
	case mode.IsDir():
		b.addDir(f, full)
	case mode.IsRegular():
		b.fileCount++
		by := b.walk.patterns.matchName(full, e.Name(), false)
		if b.mayBeProgram(full, e) {
			by = append(by, b.walk.patterns.programExtractors...)
		}
		if len(by) > 0 {
			b.addWanted(wantedFile{path: full, entry: e, extractorIndexes: by})
		}
	case mode&fs.ModeSymlink != 0:
		b.fileCount++
		if by := b.walk.patterns.matchName(full, e.Name(), true); len(by) > 0 {
			b.addWanted(wantedFile{path: full, entry: e, extractorIndexes: by, isSymlink: true})
		}
	case mode&fs.ModeIrregular != 0:
		b.fileCount++
		if _, err := e.Info(); err != nil {
			b.entryFailed(full, err)
		}
	default:
		b.fileCount++ // devices, pipes, sockets: they have no content
	}
}

// entryFailed records an entry whose type cannot be determined. One that was removed since is ignored.
func (b *dirResult) entryFailed(full string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		b.warnings = append(b.warnings,
			Warning{Path: displayPath(full), Message: "what it is cannot be read: " + errorWithoutPath(err)})
		b.unreadDirs++
	}
}

// detachEntry copies an entry so that it does not keep the others of its directory in memory, which may
// be many.
func detachEntry(e fs.DirEntry) fs.DirEntry {
	if a, ok := e.(interface{ Alone() fs.DirEntry }); ok {
		return a.Alone()
	}
	return e
}

// addDir adds a directory to the list.
func (b *dirResult) addDir(f dirTask, full string) {
	switch {
	case b.walk.skipDir != nil && b.walk.skipDir(full):
		b.skipped = append(b.skipped, Warning{Path: displayPath(full), Message: "left out as asked"})
	case len(full) > maxPathBytes || f.depth > maxDirDepth:
		b.warnings = append(b.warnings,
			Warning{Path: displayPath(full), Message: "the directory is too deep and was not read"})
		b.unreadDirs++
	case !b.walk.firstVisit(f.entry):
		b.warnings = append(b.warnings, alreadyRead(full))
	case b.step != nil:
		b.addDirStep(f)
	default:
		f.entry = detachEntry(f.entry)
		b.dirs = append(b.dirs, f)
	}
}

// addWanted adds a wanted file.
func (b *dirResult) addWanted(w wantedFile) {
	if b.step != nil {
		b.addWantedStep(w)
		return
	}
	w.entry = detachEntry(w.entry)
	b.wantedFiles = append(b.wantedFiles, w)
}

// alreadyRead is the warning about a directory with two names.
func alreadyRead(full string) Warning {
	return Warning{
		Path: displayPath(full), Message: "the directory was already read under another name", InvalidContent: true,
	}
}

// mayBeProgram reports whether an entry may be a program. Permissions are read only for those whose name
// allows it.
func (b *dirResult) mayBeProgram(full string, e fs.DirEntry) bool {
	if len(b.walk.patterns.programExtractors) == 0 {
		return false
	}
	name := classifyProgram(e.Name())
	if name == notProgram {
		return false
	}
	info, err := e.Info()
	if err != nil {
		b.entryFailed(full, err)
		return false
	}
	return info.Size() >= minProgramBytes && (name == likelyProgram || info.Mode().Perm()&0o111 != 0)
}

// readDir lists a directory by its entry where the file system can, by its path elsewhere.
func readDir(root fs.FS, f dirTask, at string) ([]fs.DirEntry, error) {
	if d, ok := f.entry.(interface{ ReadDir() ([]fs.DirEntry, error) }); ok {
		return d.ReadDir()
	}
	return fs.ReadDir(root, at)
}
