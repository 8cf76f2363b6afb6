package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
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

// isValidPath is fs.ValidPath for names of any bytes: to Linux they need not be UTF-8. Reports show such bytes as
// U+FFFD.
func isValidPath(name string) bool {
	if fs.ValidPath(name) {
		return true
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return !strings.Contains(name, "\x00")
}

// osRootFS is a directory through os.Root, for systems without a faster method.
type osRootFS struct {
	root       *os.Root
	skipDir    func(*os.File) error    // returns why a directory is left out; may be nil
	refuseFile func(fs.FileInfo) error // returns why a file is not opened; may be nil
}

var (
	_ fs.ReadDirFS  = osRootFS{}
	_ fs.StatFS     = osRootFS{}
	_ fs.ReadLinkFS = osRootFS{}
)

func openOSRoot(name string, skip func(*os.File) error, refuse func(fs.FileInfo) error) (fs.FS, io.Closer, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, nil, err
	}
	return osRootFS{root, skip, refuse}, root, nil
}

// Open opens a file or directory.
func (r osRootFS) Open(name string) (fs.File, error) {
	if !isValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if r.refuseFile != nil {
		info, err := r.root.Stat(name)
		if err == nil {
			err = r.refuseFile(info)
		}
		if err != nil {
			return nil, err
		}
	}
	f, err := r.root.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	return wrapFile(r, name, f)
}

// Stat follows links.
func (r osRootFS) Stat(name string) (fs.FileInfo, error) { return r.root.Stat(name) }

// Lstat follows none.
func (r osRootFS) Lstat(name string) (fs.FileInfo, error) { return r.root.Lstat(name) }

// ReadLink returns the unresolved target of a link.
func (r osRootFS) ReadLink(name string) (string, error) { return r.root.Readlink(name) }

// ReadDir lists a directory in no order.
func (r osRootFS) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := r.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if r.skipDir != nil {
		if err := r.skipDir(f); err != nil {
			return nil, err
		}
	}
	return listEntries(r, name, f, -1)
}

// lstater is a tree that describes entries without following links.
type lstater interface {
	Lstat(name string) (fs.FileInfo, error)
}

// dirEntry is an entry of a directory, inspected by its path from the root of the tree. The entry of
// the system does not know that path.
type dirEntry struct {
	fs.DirEntry
	tree   lstater
	parent string // path of the directory: the path of each entry would take much more
}

// Info queries the system each time.
func (e dirEntry) Info() (fs.FileInfo, error) {
	info, err := e.tree.Lstat(joinPath(e.parent, e.Name()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	return info, err
}

// listEntries lists some entries of a directory.
func listEntries(tree lstater, name string, f *os.File, n int) ([]fs.DirEntry, error) {
	list, err := f.ReadDir(n)
	for i, e := range list {
		list[i] = dirEntry{DirEntry: e, tree: tree, parent: name}
	}
	return list, err
}

// wrapFile returns an opened file. When it is a directory, its entries know their path.
func wrapFile(tree lstater, name string, f *os.File) (fs.File, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		f.Close()
		return nil, err
	case info.IsDir():
		return &dirFile{File: f, tree: tree, name: name}, nil
	default:
		return f, nil
	}
}

// dirFile is an opened directory.
type dirFile struct {
	*os.File
	tree lstater
	name string
}

// ReadDir lists the next entries.
func (o *dirFile) ReadDir(n int) ([]fs.DirEntry, error) {
	return listEntries(o.tree, o.name, o.File, n)
}
