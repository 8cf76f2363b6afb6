package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sync/semaphore"
)

// Extractor finds the packages of one kind of file. It is safe for concurrent use.
type Extractor interface {
	// Name is its name in warnings: "npm/package.json".
	Name() string
	// Patterns returns, cheaply, which names FileRequired is called for.
	Patterns() Patterns
	// FileRequired decides by its path whether a file whose name matches is read.
	FileRequired(path string) bool
	// Extract reads a file. The packages it returns count also when it fails. Packages need Kind,
	// Name and Version; those without a version are left out, and those without Locations get that
	// of the file.
	Extract(ctx context.Context, f *File) ([]Package, error)
}

// Patterns select files by name alone.
type Patterns struct {
	Names       []string // base names, exact
	Extensions  []string // last dot of a base name and what follows, in lower case
	Executables bool     // possible executable files and shared libraries
	PartialRead bool     // only parts of a file are read, so that it takes little memory however large it is
	Dirs        []string // base names of directories all of whose files are selected
	Symlinks    bool     // also symbolic links with such a name, which are never opened
}

// Content is an opened file.
type Content interface {
	io.Reader
	io.ReaderAt
	io.Seeker
}

// maxReadAllBytes is the maximum size of a file for ReadAll when the caller sets none.
const maxReadAllBytes = 64 << 20

// smallFileBytes is the size of files that are read at any time. Larger ones that are read as a whole share a
// memory budget: what a reader makes of them may take many times their size. With the limits of its reader no
// file takes more than the whole budget.
const smallFileBytes = 64 << 10

const (
	memoryBudgetBytes = 384 << 20
	decodedFactor     = 40 // bytes of memory that a byte of a file takes at most, on average
)

// memoryWeight returns how much of the budget a file needs; 0 is none.
func memoryWeight(c Patterns, w wantedFile) int64 {
	if c.PartialRead || w.isSymlink || w.entry == nil {
		return 0
	}
	info, err := w.entry.Info()
	if err != nil || info.Size() <= smallFileBytes {
		return 0
	}
	return min(info.Size()*decodedFactor, memoryBudgetBytes)
}

// ErrTooLarge reports that a file is larger than any of its kind should be.
var ErrTooLarge = errors.New("the file is too large")

// File is a file for an extractor to read. One goroutine uses it, and the caller of the extractor
// closes it.
type File struct {
	Path      string // from the root of the tree, without a leading slash
	IsSymlink bool   // it is a symbolic link

	ctx     context.Context
	root    fs.FS
	entry   fs.DirEntry
	size    int64
	content *contentReader
	fsErr   error // of its file system, which could not read it

	budget   *semaphore.Weighted // of the memory of large files; nil: the file has its part of it
	reserved bool                // it has the whole budget
}

// ReserveMemory waits until no other large file is being read, and keeps others waiting until the extractor
// returns. An extractor of which only parts are read (Patterns.PartialRead) calls it before it takes more memory
// than small files do.
func (f *File) ReserveMemory() error {
	if f.budget == nil || f.reserved {
		return nil
	}
	if err := f.budget.Acquire(f.ctx, memoryBudgetBytes); err != nil {
		f.fsErr = context.Cause(f.ctx)
		return f.fsErr
	}
	f.reserved = true
	return nil
}

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// Tree returns the tree of the file, for extractors that read neighboring files. It opens files of
// at most 64 MiB.
func (f *File) Tree() fs.FS { return boundedTree{f.ctx, f.root} }

// Stat describes another name of the tree. A failure of its file system counts as unreadable data.
func (f *File) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(f.root, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.fsErr = err
	}
	return info, err
}

// ReadFile reads a whole other file of the tree of at most limit bytes. A failure of its file system counts as
// unreadable data.
func (f *File) ReadFile(name string, limit int64) ([]byte, error) {
	other := &File{Path: name, ctx: f.ctx, root: f.root}
	defer other.close()
	data, err := other.ReadAll(limit)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && other.fsErr != nil {
		f.fsErr = other.fsErr
	}
	return data, err
}

// Open returns the file's content from its beginning. There is one content per file: opening it
// again rewinds it.
func (f *File) Open() (Content, error) {
	if f.content != nil {
		_, err := f.content.Seek(0, io.SeekStart)
		return f.content, err
	}
	opened, err := openEntry(f.root, f.Path, f.entry)
	if err != nil {
		f.fsErr = err
		return nil, err
	}
	info, err := opened.Stat()
	random, ok := opened.(Content)
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("no longer a regular file")
	case !ok:
		err = errors.New("its file system does not support reads at an offset")
	default:
		f.size = info.Size()
		f.content = &contentReader{file: opened, reader: random, owner: f}
		return f.content, nil
	}
	f.fsErr = err
	return nil, errors.Join(err, opened.Close())
}

// ReadAll reads a whole file of at most limit bytes; 0 is 64 MiB.
func (f *File) ReadAll(limit int64) ([]byte, error) {
	if limit <= 0 {
		limit = maxReadAllBytes
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	if f.size > limit {
		return nil, fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrTooLarge, f.size, limit)
	}
	data := make([]byte, f.size)
	n, err := io.ReadFull(r, data)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // the file became shorter
	}
	return data[:n], err
}

// close closes the file and returns how much of it was read.
func (f *File) close() int64 {
	if f.reserved {
		f.budget.Release(memoryBudgetBytes)
		f.reserved = false
	}
	if f.content == nil {
		return 0
	}
	n := f.content.bytesRead
	_ = f.content.file.Close() // read only
	f.content = nil
	return n
}

// contentReader aborts reads when the time is over, counts them, and records failures of the file system.
type contentReader struct {
	file      fs.File
	reader    Content
	owner     *File
	bytesRead int64
}

func (c *contentReader) Read(p []byte) (int, error) { return c.countRead(c.reader.Read, p) }

func (c *contentReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative file offset")
	}
	if off >= c.owner.size { // also offsets that no system accepts
		return 0, io.EOF
	}
	return c.countRead(func(p []byte) (int, error) { return c.reader.ReadAt(p, off) }, p)
}

func (c *contentReader) countRead(read func([]byte) (int, error), p []byte) (int, error) {
	if c.owner.ctx.Err() != nil {
		c.owner.fsErr = context.Cause(c.owner.ctx)
		return 0, c.owner.fsErr
	}
	n, err := read(p)
	c.bytesRead += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.owner.fsErr = err
	}
	return n, err
}

func (c *contentReader) Seek(off int64, whence int) (int64, error) { return c.reader.Seek(off, whence) }

// OpenFile opens a file of a tree for reads at offsets, and returns its size. Reads fail once ctx has ended.
func OpenFile(ctx context.Context, tree fs.FS, name string) (Content, int64, io.Closer, error) {
	f := &File{Path: name, ctx: ctx, root: tree}
	r, err := f.Open()
	return r, f.size, closerFunc(func() error { f.close(); return nil }), err
}

// openEntry opens a file by its entry where the file system can, by its path elsewhere.
func openEntry(root fs.FS, path string, e fs.DirEntry) (fs.File, error) {
	if o, ok := e.(interface{ Open() (fs.File, error) }); ok {
		return o.Open()
	}
	return root.Open(path)
}

// boundedTree is a tree for reading what is next to a file: it opens regular files of a bounded
// size, and nothing once the time is over.
type boundedTree struct {
	ctx  context.Context
	root fs.FS
}

var (
	_ fs.ReadDirFS = boundedTree{}
	_ fs.StatFS    = boundedTree{}

	_ fs.ReadLinkFS = boundedTree{}
)

// Open opens a file.
func (g boundedTree) Open(name string) (fs.File, error) {
	if g.ctx.Err() != nil {
		return nil, context.Cause(g.ctx)
	}
	info, err := fs.Stat(g.root, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxReadAllBytes {
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrTooLarge}
	}
	return g.root.Open(name)
}

// ReadDir lists a directory.
func (g boundedTree) ReadDir(name string) ([]fs.DirEntry, error) {
	if g.ctx.Err() != nil {
		return nil, context.Cause(g.ctx)
	}
	return fs.ReadDir(g.root, name)
}

// Stat describes a name.
func (g boundedTree) Stat(name string) (fs.FileInfo, error) { return fs.Stat(g.root, name) }

// Lstat describes a name, and not what a link leads to.
func (g boundedTree) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(g.root, name) }

// ReadLink returns where a link leads to.
func (g boundedTree) ReadLink(name string) (string, error) { return fs.ReadLink(g.root, name) }
