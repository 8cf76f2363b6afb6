package inodefs

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// entryOverheadBytes is about how many bytes an entry takes, without its name.
const entryOverheadBytes = 96

// Place identifies the inode of an entry.
type Place[N Inode] interface {
	// Volume returns the file system.
	Volume() Volume[N]
	// Parent returns the number of the inode of the directory.
	Parent() uint64
	// Inode reads the inode, and compares it with the name and the type in the directory.
	Inode(name string, mode fs.FileMode) (N, error)
}

// DirEntry is a name in a directory. It identifies its inode, so opening it needs no path lookup. Pointers to it
// implement fs.DirEntry.
type DirEntry[N Inode, P Place[N]] struct {
	EntryName string
	EntryType fs.FileMode // in the directory
	At        P
}

// Name returns the name in the directory.
func (e *DirEntry[N, P]) Name() string { return e.EntryName }

// IsDir reports whether it is a directory.
func (e *DirEntry[N, P]) IsDir() bool { return e.EntryType.IsDir() }

// Type returns the type in the directory.
func (e *DirEntry[N, P]) Type() fs.FileMode { return e.EntryType }

// Inode reads the inode.
func (e *DirEntry[N, P]) Inode() (N, error) { return e.At.Inode(e.EntryName, e.EntryType) }

// Alone returns a copy that does not keep the other entries of its directory in memory, which they
// share.
func (e *DirEntry[N, P]) Alone() fs.DirEntry {
	c := *e
	c.EntryName = strings.Clone(e.EntryName)
	return &c
}

// Info reads the inode.
func (e *DirEntry[N, P]) Info() (fs.FileInfo, error) {
	n, err := e.Inode()
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: e.EntryName, Err: err}
	}
	return Info(n, e.EntryName), nil
}

// Open opens the file of the entry. A symbolic link is not followed: its target depends on its
// path.
func (e *DirEntry[N, P]) Open() (fs.File, error) {
	n, err := e.Inode()
	if err == nil && n.IsLink() {
		err = errors.New("is a symbolic link")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: e.EntryName, Err: err}
	}
	return e.At.Volume().Open(n, e.At.Parent(), e.EntryName)
}

// ReadDir reads the directory of the entry.
func (e *DirEntry[N, P]) ReadDir() ([]fs.DirEntry, error) {
	n, err := e.Inode()
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: e.EntryName, Err: err}
	}
	return e.At.Volume().ReadDir(n, e.At.Parent(), e.EntryName)
}

// LookupEntry reads the inode of a name in the entries of a directory, which are sorted by name. listErr is the error
// of reading the directory, which may have left out the name; without one, the error is fs.ErrNotExist.
func LookupEntry[N Inode, P Place[N]](entries []DirEntry[N, P], name string, listErr error) (N, error) {
	k, found := slices.BinarySearchFunc(entries, name,
		func(e DirEntry[N, P], name string) int { return strings.Compare(e.EntryName, name) })
	if found {
		return entries[k].Inode()
	}
	if listErr == nil {
		listErr = fs.ErrNotExist
	}
	var none N
	return none, listErr
}

// DirBytes returns about how many bytes the entries of a directory take.
func DirBytes[N Inode, P Place[N]](entries []DirEntry[N, P]) int {
	size := entryOverheadBytes
	for i := range entries {
		size += entryOverheadBytes + len(entries[i].EntryName)
	}
	return size
}
