package catalog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// OwnerFinder is an extractor of the packages of operating systems that also finds the packages which own
// files. It is safe for concurrent use.
type OwnerFinder interface {
	Extractor
	// Kind returns the kind of its packages.
	Kind() PackageType
	// Root returns the root of the system that a file of its database belongs to, "." for that of the tree.
	Root(file string) (root string, ok bool)
	// Owners calls Own for the files of every package. It reads the lists of files of the database, whole, but
	// keeps none: they have a hundred times as many files as a search is for.
	Owners(q *OwnerSearch) error
}

// Declarer is an extractor of files that may declare packages without being installed with them, as lock files
// do. Those that an installed package owns are left out.
type Declarer interface{ Declares(path string) bool }

// OwnerSearch is a search for the owners of files in one database.
type OwnerSearch struct {
	Root      string    // of the system, from the root of the tree
	Databases []string  // files of the database that packages were found in, sorted
	Packages  []Package // that were found in it

	last    *Package // of Packages
	ctx     context.Context
	tree    fs.FS
	workers int
	budget  atomic.Int64 // bytes that may still be read
	aliases []pathAlias

	wanted map[string]int // path from Root -> index of owners
	mu     sync.Mutex
	owners []string // guarded by mu; "" is none
}

// Limits of a search.
const (
	maxOwnerBytes    = 2 << 30  // that are read in all
	maxListBytes     = 16 << 20 // of one list of files
	ownerTimeout     = time.Minute
	maxAliasedBytes  = 1024 // of a path behind a link
	ownerFileReaders = 8
)

// pathAlias is a directory of a system that is a link to another one, such as "lib/" for "usr/lib/": package
// databases may have either, a walk finds the files in the second.
type pathAlias struct{ from, to string }

// Context returns the context of the search.
func (q *OwnerSearch) Context() context.Context { return q.ctx }

// Tree returns the tree of the database.
func (q *OwnerSearch) Tree() fs.FS { return boundedTree{q.ctx, q.tree} }

// Open opens a file of the database of any size for reads at offsets, and returns its size.
func (q *OwnerSearch) Open(name string) (Content, int64, io.Closer, error) {
	return OpenFile(q.ctx, q.tree, name)
}

type closerFunc func() error

func (c closerFunc) Close() error { return c() }

// Own records the owner of a file if the search is for that file. The path is from the root of the system, with
// or without a slash or "./" at its beginning. It is safe for concurrent use.
func (q *OwnerSearch) Own(file []byte, owner string) {
	file = bytes.TrimPrefix(bytes.TrimPrefix(file, []byte(".")), []byte("/"))
	i, ok := q.wanted[string(file)]
	if !ok {
		for _, a := range q.aliases {
			if len(file) > len(a.from) && string(file[:len(a.from)]) == a.from {
				if i, ok = q.aliased(a, file[len(a.from):]); ok {
					break
				}
			}
		}
	}
	if !ok {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if old := q.owners[i]; old == "" || owner < old { // several architectures of a package share files
		q.owners[i] = owner
	}
}

// aliased looks up a path behind a link.
func (q *OwnerSearch) aliased(a pathAlias, rest []byte) (int, bool) {
	var buf [maxAliasedBytes]byte
	if len(a.to)+len(rest) > len(buf) {
		return 0, false
	}
	n := copy(buf[:], a.to)
	n += copy(buf[n:], rest)
	i, ok := q.wanted[string(buf[:n])]
	return i, ok
}

// ReadFile reads a whole file of the database of at most limit bytes.
func (q *OwnerSearch) ReadFile(name string, limit int64) ([]byte, error) {
	f := &File{Path: name, ctx: q.ctx, root: q.tree}
	defer f.close()
	return f.ReadAll(limit)
}

// EachFile reads the files of a directory whose names select accepts, with several goroutines, each of which passes
// them to do. The data is valid only during the call. A missing directory has no files.
func (q *OwnerSearch) EachFile(dir string, selects func(base string) bool, do func(base string, data []byte)) error {
	entries, err := fs.ReadDir(q.tree, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return !e.Type().IsRegular() || !isValidPath(e.Name()) || !selects(e.Name())
	})
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, min(q.workers, ownerFileReaders, len(entries)))
	for k := range errs {
		all.Go(func() {
			var buf []byte
			for i := next.Add(1) - 1; int(i) < len(entries) && errs[k] == nil; i = next.Add(1) - 1 {
				e := entries[i]
				buf, errs[k] = q.readFile(path.Join(dir, e.Name()), e, buf)
				if errs[k] == nil {
					do(e.Name(), buf)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// readFile reads a file into a buffer.
func (q *OwnerSearch) readFile(name string, e fs.DirEntry, buf []byte) ([]byte, error) {
	if q.ctx.Err() != nil {
		return buf, context.Cause(q.ctx)
	}
	f, err := openEntry(q.tree, name, e)
	if errors.Is(err, fs.ErrNotExist) {
		return buf[:0], nil
	}
	if err != nil {
		return buf, err
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return buf, err
	}
	size := info.Size()
	if size > maxListBytes || q.budget.Add(-size) < 0 {
		return buf, fmt.Errorf("%s: %w: a list of files has %d bytes, of which all together may have %d",
			path.Base(name), ErrTooLarge, size, int64(maxOwnerBytes))
	}
	buf = slices.Grow(buf[:0], int(size))[:size]
	n, err := io.ReadFull(f, buf)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // the file became shorter
	}
	return buf[:n], err
}

// fileOwner is the owner of a file; the zero value is none.
type fileOwner struct{ owner, distribution string }

// ownerSearches finds the owners of files in all databases of a tree.
type ownerSearches struct {
	extractors []Extractor
	tree       fs.FS
	workers    int
	warnings   []Warning
}

// databaseKey identifies a database.
type databaseKey struct {
	finder int // index of extractors
	root   string
}

// find returns the owners of files, by their paths in reports. osPackages are those that were found in the tree.
// In a system within another, the inner one decides. It takes at most a minute.
func (s *ownerSearches) find(ctx context.Context, osPackages []*Package, paths []string) map[string]fileOwner {
	ctx, cancel := context.WithTimeoutCause(ctx, ownerTimeout, errTimeout)
	defer cancel()
	paths = sortedUnique(paths)
	databases := s.databases(osPackages)
	keys := make([]databaseKey, 0, len(databases))
	for k := range databases {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b databaseKey) int {
		return cmp.Or(cmp.Compare(strings.Count(b.root, "/"), strings.Count(a.root, "/")),
			-cmp.Compare(len(a.root), len(b.root)), cmp.Compare(a.root, b.root), cmp.Compare(a.finder, b.finder))
	})
	out := map[string]fileOwner{}
	for _, k := range keys {
		s.search(ctx, k, databases[k], paths, out)
	}
	return out
}

// databases groups packages by the database that they were found in.
func (s *ownerSearches) databases(osPackages []*Package) map[databaseKey]*OwnerSearch {
	out := map[databaseKey]*OwnerSearch{}
	for i, e := range s.extractors {
		finder, ok := e.(OwnerFinder)
		if !ok {
			continue
		}
		for _, p := range osPackages {
			if p.Kind != finder.Kind() {
				continue
			}
			for _, l := range p.Locations {
				file := strings.TrimPrefix(l, "/")
				root, ok := finder.Root(file)
				if !ok {
					continue
				}
				q := out[databaseKey{i, root}]
				if q == nil {
					q = &OwnerSearch{Root: root}
					out[databaseKey{i, root}] = q
				}
				if q.last != p {
					q.Packages, q.last = append(q.Packages, *p), p
				}
				q.Databases = append(q.Databases, file)
			}
		}
	}
	return out
}

// search searches one database for the owners of sorted paths that have none in out.
func (s *ownerSearches) search(
	ctx context.Context, k databaseKey, q *OwnerSearch, paths []string, out map[string]fileOwner,
) {
	prefix := "/"
	if k.root != "." {
		prefix += k.root + "/"
	}
	first, _ := slices.BinarySearch(paths, prefix)
	paths = paths[first:]
	q.wanted = map[string]int{}
	for i, p := range paths {
		inside, ok := strings.CutPrefix(p, prefix)
		if !ok {
			paths = paths[:i]
			break
		}
		if out[p].owner == "" {
			q.wanted[inside] = i
		}
	}
	if len(q.wanted) == 0 {
		return
	}
	q.owners = make([]string, len(paths))
	q.ctx, q.tree, q.workers, q.Databases = ctx, s.tree, s.workers, sortedUnique(q.Databases)
	q.budget.Store(maxOwnerBytes)
	q.aliases = findAliases(s.tree, k.root)
	finder, _ := s.extractors[k.finder].(OwnerFinder)
	if err := runOwners(finder, q); err != nil {
		s.warnings = append(s.warnings, Warning{
			Path:    displayPath(q.Databases[0]),
			Message: finder.Name() + ": the owners of files are not all known: " + errorWithoutPath(err),
		})
	}
	for i, owner := range q.owners {
		if owner != "" {
			out[paths[i]] = fileOwner{owner, q.Packages[0].Distribution}
		}
	}
}

// runOwners runs a search. A database that makes it panic is handled as unreadable.
func runOwners(finder OwnerFinder, q *OwnerSearch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error of the reader: %.100s", fmt.Sprint(p))
		}
	}()
	err = finder.Owners(q)
	if err == nil && q.ctx.Err() != nil {
		err = context.Cause(q.ctx)
	}
	return err
}

// findAliases returns the directories at the root of a system and in its usr that are links within the system:
// most systems have merged lib into usr/lib, and some usr/sbin into usr/bin.
func findAliases(tree fs.FS, root string) (out []pathAlias) {
	for _, dir := range []string{"", "usr/"} {
		entries, err := fs.ReadDir(tree, path.Join(root, dir))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink == 0 || len(out) == 64 {
				continue
			}
			target, err := fs.ReadLink(tree, path.Join(root, dir, e.Name()))
			if err != nil {
				continue
			}
			if !path.IsAbs(target) {
				target = path.Join("/", dir, target)
			}
			if to := strings.TrimPrefix(path.Clean(target), "/"); to != "" {
				out = append(out, pathAlias{dir + e.Name() + "/", to + "/"})
			}
		}
	}
	slices.SortFunc(out, func(a, b pathAlias) int { return cmp.Compare(a.from, b.from) })
	return resolveAliases(out)
}

// resolveAliases replaces targets that are links themselves: sbin -> usr/sbin -> usr/bin.
func resolveAliases(list []pathAlias) []pathAlias {
	for i := range list {
		for _, a := range list {
			if rest, ok := strings.CutPrefix(list[i].to, a.from); ok && a.to != list[i].from {
				list[i].to = a.to + rest
				break
			}
		}
	}
	return list
}
