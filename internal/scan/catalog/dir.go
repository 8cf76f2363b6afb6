package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// OpenDir returns a directory of this machine as a tree. Links are followed inside it only: an
// absolute one begins at its root. Virtual file systems (/proc) and those on other machines are
// skipped, unless the directory itself is of that kind.
func OpenDir(name string) (fs.FS, io.Closer, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a directory: %w", err)
	}
	if !info.IsDir() {
		return nil, nil, fmt.Errorf("opening a directory: %s is not a directory", name)
	}
	tree, closer, err := openDir(name)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a directory: %w", err)
	}
	return tree, closer, nil
}

// rooted is a directory through os.Root, for systems without a faster method.
type rooted struct {
	root   *os.Root
	skip   func(*os.File) error    // returns why a directory is left out; may be nil
	refuse func(fs.FileInfo) error // returns why a file is not opened; may be nil
}

var (
	_ fs.ReadDirFS  = rooted{}
	_ fs.StatFS     = rooted{}
	_ fs.ReadLinkFS = rooted{}
)

func openRooted(name string, skip func(*os.File) error, refuse func(fs.FileInfo) error) (fs.FS, io.Closer, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, nil, err
	}
	return rooted{root, skip, refuse}, root, nil
}

// Open opens a file or directory.
func (r rooted) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if r.refuse != nil {
		info, err := r.root.Stat(name)
		if err == nil {
			err = r.refuse(info)
		}
		if err != nil {
			return nil, err
		}
	}
	f, err := r.root.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	return asFile(r, name, f)
}

// Stat follows links.
func (r rooted) Stat(name string) (fs.FileInfo, error) { return r.root.Stat(name) }

// Lstat follows none.
func (r rooted) Lstat(name string) (fs.FileInfo, error) { return r.root.Lstat(name) }

// ReadLink returns the unresolved target of a link.
func (r rooted) ReadLink(name string) (string, error) { return r.root.Readlink(name) }

// ReadDir lists a directory in no order.
func (r rooted) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := r.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if r.skip != nil {
		if err := r.skip(f); err != nil {
			return nil, err
		}
	}
	return entries(r, name, f, -1)
}

// lstater is a tree that describes entries without following links.
type lstater interface {
	Lstat(name string) (fs.FileInfo, error)
}

// entry is an entry of a directory, inspected by its path from the root of the tree. The entry of
// the system does not know that path.
type entry struct {
	fs.DirEntry
	tree lstater
	in   string // path of the directory: the path of each entry would take much more
}

// Info queries the system each time.
func (e entry) Info() (fs.FileInfo, error) {
	info, err := e.tree.Lstat(join(e.in, e.Name()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	return info, err
}

// entries lists some entries of a directory.
func entries(tree lstater, name string, f *os.File, n int) ([]fs.DirEntry, error) {
	list, err := f.ReadDir(n)
	for i, e := range list {
		list[i] = entry{DirEntry: e, tree: tree, in: name}
	}
	return list, err
}

// asFile returns an opened file. When it is a directory, its entries know their path.
func asFile(tree lstater, name string, f *os.File) (fs.File, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		f.Close()
		return nil, err
	case info.IsDir():
		return &opened{File: f, tree: tree, name: name}, nil
	default:
		return f, nil
	}
}

// opened is an opened directory.
type opened struct {
	*os.File
	tree lstater
	name string
}

// ReadDir lists the next entries.
func (o *opened) ReadDir(n int) ([]fs.DirEntry, error) { return entries(o.tree, o.name, o.File, n) }
