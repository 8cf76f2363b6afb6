package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/buildyard/buildyard/internal/scan/catalog/ziplimit"
)

// Options configure a scan. The zero value finds nothing.
type Options struct {
	Extractors    []Extractor
	CPEs          func(Package) []string    // names packages for the vulnerability database; nil: they have none
	SkipDir       func(path string) bool    // directories that are left out and listed; nil: none
	Exclude       func(path string) bool    // files and directories that are left out and counted; nil: none
	Progress      func(files, packages int) // called about four times a second, by one goroutine at a time; may be nil
	Workers       int                       // goroutines; 0 is one per processor
	FileTimeout   time.Duration             // that one extractor may spend on one file; 0 is a minute, less after many
	Limits        Limits                    // of the result
	Development   bool                      // packages that lock files name for development alone count, too
	OnWorkerStart func()                    // called by each goroutine before it works; may be nil
	Steps         *Steps                    // of an earlier scan of the tree, which are updated; nil: none
}

func (o *Options) workerStarted() {
	if o.OnWorkerStart != nil {
		o.OnWorkerStart()
	}
}

// Warning describes something that was not read, or only in part.
type Warning struct {
	Path    string // with a leading slash
	Message string // a sentence without a full stop
	// InvalidContent reports that it was read and its content does not fit its name: nothing of the tree was
	// missed.
	InvalidContent bool
}

// Result is the result of a scan.
type Result struct {
	Packages []Package // each name and version of a kind once, in the order of names
	Warnings []Warning // what could not be read, in the order of paths
	Skipped  []Warning // what was left out on purpose, in the order of paths

	Files      int   // entries other than directories
	Dirs       int   // that were read, the root too
	Excluded   int   // files and directories that Options.Exclude left out; what is below is not counted
	FilesRead  int   // files that an extractor read, now or in an earlier scan
	FilesKept  int   // those of FilesRead whose result is that of an earlier scan (Options.Steps)
	Unreadable int   // files and directories that could not be read
	LeftOut    int   // packages that only lock files name, for development alone, without Options.Development
	BytesRead  int64 // read from files

	packageBytes int64 // bytes that the packages take
}

// SkipDirError is an error of a file system's ReadDir: the directory is left out on purpose.
type SkipDirError struct{ Reason string }

func (s *SkipDirError) Error() string { return s.Reason }

// Scan finds the packages of a tree. It fails only when its root cannot be listed or ctx ends;
// every other failure is a warning. Equal trees have equal results, whatever the number of
// goroutines.
func Scan(ctx context.Context, root fs.FS, o Options) (*Result, error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.FileTimeout <= 0 {
		o.FileTimeout = time.Minute
	}
	if _, err := fs.Stat(root, "."); err != nil {
		return nil, fmt.Errorf("scanning: %w", err)
	}
	if o.Steps != nil {
		root = o.Steps.tree
	}
	o.Limits = o.Limits.withDefaults()
	p := &progress{report: o.Progress}
	defer p.start()()
	r := &scanRun{
		root: root, patterns: newPatternTable(o.Extractors), options: o, progress: p, packages: newPackageSet(o.Limits),
		memoryBudget: semaphore.NewWeighted(memoryBudgetBytes),
	}
	r.walk = newWalk(r)
	r.walk.addKept = r.addKept
	if err := r.walk.run(ctx, o.Workers); err != nil {
		return nil, fmt.Errorf("scanning: %w", err)
	}
	out := r.buildResult(ctx)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("scanning: %w", context.Cause(ctx))
	}
	return out, nil
}

// scanRun collects what is found in the files of a walk.
type scanRun struct {
	root     fs.FS
	patterns *patternTable
	options  Options
	progress *progress
	walk     *walk

	memoryBudget *semaphore.Weighted // of large files that are in memory
	slowFiles    slowFiles

	mu       sync.Mutex
	packages *packageSet
	leftOut  map[uint64]struct{} // hashes of packages for development, at most Limits.Packages
	result   Result              // its counts
}

// fileOutcome is the result of one file.
type fileOutcome struct {
	packages  []Package
	warnings  []Warning
	bytesRead int64
}

// acquireMemory waits for the part of the memory budget that a file needs, and marks the file as one that has it.
func (r *scanRun) acquireMemory(ctx context.Context, w *wantedFile) (release func(), err error) {
	n := int64(0)
	for _, i := range w.extractorIndexes {
		n = max(n, memoryWeight(r.patterns.extractors[i].Patterns(), *w))
	}
	if n == 0 { // acquiring nothing would also wait
		return func() {}, nil
	}
	if err := r.memoryBudget.Acquire(ctx, n); err != nil {
		return nil, err
	}
	w.hasMemory = true
	return func() { r.memoryBudget.Release(n) }, nil
}

// readFile extracts the packages of a file, and keeps them. The packages of a large file are large,
// too: the next one waits until they are kept.
func (r *scanRun) readFile(ctx context.Context, w wantedFile) {
	release, err := r.acquireMemory(ctx, &w)
	if err != nil {
		return // the scan has ended
	}
	defer release()
	if w.step != nil {
		r.addOutcome(w, r.readStep(ctx, w))
		return
	}
	r.addOutcome(w, r.extractFile(ctx, r.root, w))
}

// addKept adds the results of files that an earlier scan has read.
func (r *scanRun) addKept(files []keptFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range files {
		r.addOutcomeLocked(k.file, k.outcome)
	}
	r.result.FilesKept += len(files)
}

// addOutcome adds the result of a file.
func (r *scanRun) addOutcome(w wantedFile, o fileOutcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addOutcomeLocked(w, o)
}

func (r *scanRun) addOutcomeLocked(w wantedFile, o fileOutcome) {
	r.progress.packageCount.Add(int64(len(o.packages)))
	for _, p := range o.packages {
		if p.Development && !r.options.Development {
			r.leaveOut(&p)
			continue
		}
		r.packages.add(p)
	}
	r.walk.addWarnings(o.warnings)
	r.result.BytesRead += o.bytesRead
	switch {
	case slices.ContainsFunc(o.warnings, isDataMissing):
		r.result.Unreadable++
	case !w.isSymlink:
		r.result.FilesRead++
	}
}

// leaveOut counts a package that lock files name for development alone.
func (r *scanRun) leaveOut(p *Package) {
	if r.leftOut == nil {
		r.leftOut = map[uint64]struct{}{}
	}
	if len(r.leftOut) < r.options.Limits.Packages {
		r.leftOut[packageKeyOf(*p).hash()] = struct{}{}
	}
}

// countLeftOut returns how many packages were left out that are in no other file.
func (r *scanRun) countLeftOut() int {
	for k := range r.packages.byKey {
		if len(r.leftOut) == 0 {
			break
		}
		delete(r.leftOut, packageKey{kind: k.kind, name: k.name, version: k.version}.hash())
	}
	return len(r.leftOut)
}

// extractFile runs every extractor that wants a file of a tree.
func (r *scanRun) extractFile(ctx context.Context, root fs.FS, w wantedFile) (out fileOutcome) {
	place := displayPath(w.path)
	places := []string{place} // shared by all packages
	for _, i := range w.extractorIndexes {
		e := r.patterns.extractors[i]
		packages, n, odd, err := r.runExtractor(ctx, e, root, w)
		out.bytesRead += n
		named := packages[:0]
		for _, p := range packages {
			if p.Name == "" || p.Version == "" {
				continue
			}
			if len(p.Name) > maxNameBytes || len(p.Version) > maxVersionBytes {
				err, odd = cmp.Or(err, errNameTooLong), odd || err == nil
				continue
			}
			if len(p.Locations) == 0 {
				p.Locations = places
			}
			named = append(named, p)
		}
		if out.packages == nil {
			out.packages = named
		} else {
			out.packages = append(out.packages, named...)
		}
		if err != nil && ctx.Err() == nil {
			out.warnings = append(out.warnings,
				Warning{Path: place, Message: e.Name() + ": " + errorWithoutPath(err), InvalidContent: odd})
		}
	}
	return out
}

// errTimeout stops an extractor that takes too long.
var errTimeout = errors.New("reading the file took too long")

// runExtractor runs one extractor. A file that makes it panic is handled as unreadable; odd reports a
// file whose bytes were readable and invalid, other than a database of installed packages.
func (r *scanRun) runExtractor(
	ctx context.Context, e Extractor, root fs.FS, w wantedFile,
) (packages []Package, n int64, odd bool, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, r.slowFiles.timeout(r.options.FileTimeout), errTimeout)
	defer cancel()
	f := &File{Path: w.path, IsSymlink: w.isSymlink, ctx: ctx, root: root, entry: w.entry}
	if !w.hasMemory {
		f.budget = r.memoryBudget
	}
	defer func() {
		if ctx.Err() != nil {
			f.fsErr = context.Cause(ctx) // an extractor may have ended before the end
		}
		if err == nil {
			err = f.fsErr // an extractor may continue without what it could not read; the scan is incomplete
		}
		odd = f.fsErr == nil && !isDatabase(e) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ziplimit.ErrTooMany)
		if p := recover(); p != nil {
			odd, err = false, fmt.Errorf("internal error of the reader: %.100s", fmt.Sprint(p))
		}
		n = f.close()
		r.slowFiles.add(time.Since(began))
	}()
	packages, err = e.Extract(ctx, f)
	return packages, 0, false, err
}

// isDatabase reports whether an extractor reads databases of installed packages. A damaged one means missing data:
// what it lists is installed, whether or not it can be read.
func isDatabase(e Extractor) bool {
	_, ok := e.(OwnerFinder)
	return ok
}

// buildResult builds the result.
func (r *scanRun) buildResult(ctx context.Context) *Result {
	out, w := &r.result, r.walk
	out.Files, out.Dirs, out.Excluded = w.fileCount, w.dirCount, w.excluded
	out.Unreadable += w.unreadDirs
	out.LeftOut = r.countLeftOut()
	out.Packages = r.assignOwners(ctx, r.packages.packages())
	out.packageBytes = r.packages.kept.usedBytes
	if r.options.CPEs != nil {
		for i := range out.Packages {
			out.Packages[i].CPEs = r.options.CPEs(out.Packages[i])
		}
	}
	out.Warnings, out.Skipped = slices.Clip(w.warnings.trim()), slices.Clip(w.skipped.trim())
	for _, m := range slices.Concat(
		omittedWarning(r.packages.droppedEntries, "entries of packages"),
		omittedWarning(w.warnings.droppedCount, "warnings"), omittedWarning(w.unlistedDirs, "directories"),
	) {
		out.Warnings = append(out.Warnings, m)
		out.Unreadable++
	}
	out.Skipped = append(out.Skipped, omittedWarning(w.skipped.droppedCount, "directories that were left out")...)
	return out
}

func isDataMissing(w Warning) bool { return !w.InvalidContent }

// Limits on the name and version of a package.
const (
	maxNameBytes    = 1024
	maxVersionBytes = 512
)

var errNameTooLong = fmt.Errorf("the file has a package name of more than %d bytes, or a version of more than %d",
	maxNameBytes,
	maxVersionBytes)

// displayPath formats a path for reports: from the root of the tree, with a leading slash.
func displayPath(path string) string {
	if path == "." {
		return "/"
	}
	return "/" + path
}

// errorWithoutPath formats an error on one line without the path that is reported next to it.
func errorWithoutPath(err error) string {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "..."
	}
	return text
}
