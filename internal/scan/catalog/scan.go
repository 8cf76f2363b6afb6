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
	Extractors []Extractor
	CPEs       func(Package) []string    // names packages for the vulnerability database; nil: they have none
	Leave      func(path string) bool    // directories that are left out; nil: none
	Progress   func(files, packages int) // called about four times a second, by one goroutine at a time; may be nil
	Workers    int                       // goroutines; 0 is one per processor
	FileTime   time.Duration             // that one extractor may spend on one file; 0 is a minute
	Limits     Limits                    // of the result
	Begin      func()                    // called by each goroutine before it works; may be nil
}

func (o *Options) begin() {
	if o.Begin != nil {
		o.Begin()
	}
}

// Warning describes something that was not read, or only in part.
type Warning struct {
	Path string // with a leading slash
	What string // a sentence without a full stop
	// Odd reports that it was read and its content does not fit its name: nothing of the tree was
	// missed.
	Odd bool
}

// Result is the result of a scan.
type Result struct {
	Packages []Package // each name and version of a kind once, in the order of names
	Warnings []Warning // what could not be read, in the order of paths
	Skipped  []Warning // what was left out on purpose, in the order of paths

	Files   int   // entries other than directories
	Folders int   // that were read, the root too
	Read    int   // files that an extractor read
	Unread  int   // files and directories that could not be read
	Bytes   int64 // read from files

	text int64 // bytes that the packages take
}

// SkipDirError is an error of a file system's ReadDir: the directory is left out on purpose.
type SkipDirError struct{ Why string }

func (s *SkipDirError) Error() string { return s.Why }

// Scan finds the packages of a tree. It fails only when its root cannot be listed or ctx ends;
// every other failure is a warning. Equal trees have equal results, whatever the number of
// goroutines.
func Scan(ctx context.Context, root fs.FS, o Options) (*Result, error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.FileTime <= 0 {
		o.FileTime = time.Minute
	}
	if _, err := fs.Stat(root, "."); err != nil {
		return nil, fmt.Errorf("scanning: %w", err)
	}
	o.Limits = o.Limits.orUsual()
	p := &progress{tell: o.Progress}
	defer p.start()()
	r := &reading{
		root: root, claims: newPatternTable(o.Extractors), options: o, report: p, packages: newPackageSet(o.Limits),
		room: semaphore.NewWeighted(room),
	}
	r.walk = newWalk(r)
	if err := r.walk.run(ctx, o.Workers); err != nil {
		return nil, fmt.Errorf("scanning: %w", err)
	}
	return r.end(), nil
}

// reading collects what is found in the files of a walk.
type reading struct {
	root    fs.FS
	claims  *patternTable
	options Options
	report  *progress
	walk    *walk

	room *semaphore.Weighted // of large files that are in memory

	mu       sync.Mutex
	packages *packageSet
	result   Result // its counts
}

// outcome is the result of one file.
type outcome struct {
	packages []Package
	warnings []Warning
	bytes    int64
}

// read extracts the packages of a file, and keeps them. The packages of a large file are large,
// too: the next one waits until they are kept.
func (r *reading) read(ctx context.Context, w wanted) {
	n := int64(0)
	for _, i := range w.by {
		n = max(n, weight(r.claims.extractors[i].Patterns(), w))
	}
	if n > 0 { // acquiring nothing would also wait
		if err := r.room.Acquire(ctx, n); err != nil {
			return // the scan has ended
		}
		defer r.room.Release(n)
	}
	r.keep(w, r.file(ctx, w))
}

// keep adds the result of a file.
func (r *reading) keep(w wanted, o outcome) {
	r.report.packages.Add(int64(len(o.packages)))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range o.packages {
		r.packages.add(p)
	}
	r.walk.warn(o.warnings)
	r.result.Bytes += o.bytes
	switch {
	case slices.ContainsFunc(o.warnings, missed):
		r.result.Unread++
	case !w.link:
		r.result.Read++
	}
}

// file runs every extractor that wants a file.
func (r *reading) file(ctx context.Context, w wanted) (out outcome) {
	place := shown(w.path)
	places := []string{place} // shared by all packages
	for _, i := range w.by {
		e := r.claims.extractors[i]
		packages, n, odd, err := r.extract(ctx, e, w)
		out.bytes += n
		named := packages[:0]
		for _, p := range packages {
			if p.Name == "" || p.Version == "" {
				continue
			}
			if len(p.Name) > maxName || len(p.Version) > maxVersion {
				err, odd = cmp.Or(err, errLong), odd || err == nil
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
			out.warnings = append(out.warnings, Warning{Path: place, What: e.Name() + ": " + bare(err), Odd: odd})
		}
	}
	return out
}

// errTime stops an extractor that takes too long.
var errTime = errors.New("reading it took too long")

// extract runs one extractor. A file that makes it panic is handled as unreadable; odd reports a
// file whose bytes were readable and invalid.
func (r *reading) extract(
	ctx context.Context, e Extractor, w wanted,
) (packages []Package, n int64, odd bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.FileTime, errTime)
	defer cancel()
	f := &File{Path: w.path, Link: w.link, ctx: ctx, root: r.root, entry: w.entry}
	defer func() {
		if err == nil && ctx.Err() != nil {
			f.failed = context.Cause(ctx) // an extractor may have ended before the end
		}
		if err == nil {
			err = f.failed // an extractor may continue without what it could not read; the scan is incomplete
		}
		odd = f.failed == nil && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ziplimit.ErrTooMany)
		if p := recover(); p != nil {
			odd, err = false, fmt.Errorf("its reader failed: %.100s", fmt.Sprint(p))
		}
		n = f.close()
	}()
	packages, err = e.Extract(ctx, f)
	return packages, 0, false, err
}

// end builds the result.
func (r *reading) end() *Result {
	out, w := &r.result, r.walk
	out.Files, out.Folders, out.Unread = w.files, w.dirs, out.Unread+w.unread
	out.Packages = r.packages.packages()
	out.text = r.packages.first.used
	if r.options.CPEs != nil {
		for i := range out.Packages {
			out.Packages[i].CPEs = r.options.CPEs(out.Packages[i])
		}
	}
	out.Warnings, out.Skipped = slices.Clip(w.warnings.cut()), slices.Clip(w.skipped.cut())
	for _, m := range slices.Concat(
		more(r.packages.left, "entries of packages"), more(w.warnings.left, "warnings"), more(w.unlisted, "folders"),
	) {
		out.Warnings = append(out.Warnings, m)
		out.Unread++
	}
	out.Skipped = append(out.Skipped, more(w.skipped.left, "directories that were left out")...)
	return out
}

func missed(w Warning) bool { return !w.Odd }

// Limits on the name and version of a package.
const (
	maxName    = 1024
	maxVersion = 512
)

var errLong = fmt.Errorf("it names a package by more than %d bytes, or a version by more than %d", maxName, maxVersion)

// shown formats a path for reports: from the root of the tree, with a leading slash.
func shown(path string) string {
	if path == "." {
		return "/"
	}
	return "/" + path
}

// bare formats an error on one line without the path that is reported next to it.
func bare(err error) string {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "..."
	}
	return text
}
