package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Extractor finds the packages of one kind of file. It is used by several goroutines.
type Extractor interface {
	// Name is how warnings call it: "npm/package.json".
	Name() string
	// Patterns says, cheaply, which names are worth a second look.
	Patterns() Patterns
	// FileRequired decides by the path of a file whose name is claimed.
	FileRequired(path string) bool
	// Extract reads a file. What it found counts also when it fails. Packages need Kind,
	// Name and Version; those without a version are left out, and locations without
	// Locations are that of the file.
	Extract(ctx context.Context, f *File) ([]Package, error)
}

// Patterns is what an extractor asks for by the name of a file alone.
type Patterns struct {
	Names      []string // base names, as they are
	Extensions []string // what follows the last dot of a base name, in lower case, with the dot
	Programs   bool     // what may be an executable file or a shared library
	Parts      bool     // only parts of a file are read, so that it takes little memory however large it is
	Links      bool     // symbolic links with such a name too, which are never opened
}

// Content is an opened file.
type Content interface {
	io.Reader
	io.ReaderAt
	io.Seeker
}

// maxFile is how large a file may be for ReadAll when the caller does not say.
const maxFile = 64 << 20

// Files of more than small bytes that are read as a whole share a room: what is made of them
// takes many times as much memory.
const (
	small = 1 << 20
	room  = 32 << 20
)

// weight is how much of the room a file needs; 0 is none.
func weight(c Patterns, w wanted) int64 {
	if c.Parts || w.link || w.entry == nil {
		return 0
	}
	info, err := w.entry.Info()
	if err != nil || info.Size() <= small {
		return 0
	}
	return min(info.Size(), room)
}

// ErrTooLarge says that a file is larger than any of its kind should be.
var ErrTooLarge = errors.New("the file is too large")

// File is a file that an extractor is asked to read. It belongs to one goroutine, and is
// closed behind the extractor's back.
type File struct {
	Path string // from the root of the tree, without a leading slash
	Link bool   // it is a symbolic link

	ctx     context.Context
	root    fs.FS
	entry   fs.DirEntry
	size    int64
	content *content
	failed  error // of its file system, which could not give it
}

// Size is how many bytes the file has.
func (f *File) Size() int64 { return f.size }

// Tree is what the file is in, for extractors that look at what is next to it. What it
// opens are files of at most 64 MiB.
func (f *File) Tree() fs.FS { return boundedTree{f.ctx, f.root} }

// Stat returns what another name of the tree is. What its file system cannot say is missed.
func (f *File) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(f.root, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.failed = err
	}
	return info, err
}

// Open returns the file's content from its beginning. There is one content per file: to
// open it again rewinds it.
func (f *File) Open() (Content, error) {
	if f.content != nil {
		_, err := f.content.Seek(0, io.SeekStart)
		return f.content, err
	}
	opened, err := openEntry(f.root, f.Path, f.entry)
	if err != nil {
		f.failed = err
		return nil, err
	}
	info, err := opened.Stat()
	random, ok := opened.(Content)
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("it is not a regular file any more")
	case !ok:
		err = errors.New("its file system does not read at any place of a file")
	default:
		f.size = info.Size()
		f.content = &content{file: opened, random: random, of: f}
		return f.content, nil
	}
	f.failed = err
	return nil, errors.Join(err, opened.Close())
}

// ReadAll reads a whole file of at most limit bytes; 0 is 64 MiB.
func (f *File) ReadAll(limit int64) ([]byte, error) {
	if limit <= 0 {
		limit = maxFile
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	if f.size > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTooLarge, f.size, limit)
	}
	data := make([]byte, f.size)
	n, err := io.ReadFull(r, data)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // it became shorter
	}
	return data[:n], err
}

// close returns the file back and says how much of it was read.
func (f *File) close() int64 {
	if f.content == nil {
		return 0
	}
	n := f.content.read
	_ = f.content.file.Close() // it was only read
	f.content = nil
	return n
}

// content ends what reads it when the time is over, counts, and notes what its file system
// could not give.
type content struct {
	file   fs.File
	random Content
	of     *File
	read   int64
}

func (c *content) Read(p []byte) (int, error) { return c.note(c.random.Read, p) }

func (c *content) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("it names a place before its beginning")
	}
	if off >= c.of.size { // also places that no system takes
		return 0, io.EOF
	}
	return c.note(func(p []byte) (int, error) { return c.random.ReadAt(p, off) }, p)
}

func (c *content) note(read func([]byte) (int, error), p []byte) (int, error) {
	if c.of.ctx.Err() != nil {
		c.of.failed = context.Cause(c.of.ctx)
		return 0, c.of.failed
	}
	n, err := read(p)
	c.read += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.of.failed = err
	}
	return n, err
}

func (c *content) Seek(off int64, whence int) (int64, error) { return c.random.Seek(off, whence) }

// openEntry opens a file by its entry where the file system can, by its path elsewhere.
func openEntry(root fs.FS, path string, e fs.DirEntry) (fs.File, error) {
	if o, ok := e.(interface{ Open() (fs.File, error) }); ok {
		return o.Open()
	}
	return root.Open(path)
}

// boundedTree is a tree for looking at what is next to a file: it gives regular files of a
// bounded size and nothing once the time is over.
type boundedTree struct {
	ctx  context.Context
	root fs.FS
}

var (
	_ fs.ReadDirFS = boundedTree{}
	_ fs.StatFS    = boundedTree{}
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
	if !info.Mode().IsRegular() || info.Size() > maxFile {
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

// Stat returns what a name is.
func (g boundedTree) Stat(name string) (fs.FileInfo, error) { return fs.Stat(g.root, name) }
