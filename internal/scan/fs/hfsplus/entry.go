package hfsplus

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// dirEntry is a name in a directory. It has the place of the record in the catalog, so opening it needs no path
// lookup.
type dirEntry struct {
	fs    *FS
	name  string
	node  uint32
	index uint16
	mode  fs.FileMode
}

var (
	_ fs.DirEntry = (*dirEntry)(nil)
	_ interface {
		Open() (fs.File, error)
		ReadDir() ([]fs.DirEntry, error)
		Alone() fs.DirEntry
	} = (*dirEntry)(nil)
)

func (e *dirEntry) Name() string      { return e.name }
func (e *dirEntry) IsDir() bool       { return e.mode.IsDir() }
func (e *dirEntry) Type() fs.FileMode { return e.mode }

// Alone returns a copy that does not keep the other entries of its directory in memory, which they
// share.
func (e *dirEntry) Alone() fs.DirEntry {
	c := *e
	c.name = strings.Clone(e.name)
	return &c
}

// readInode reads the record of the entry. That of a further name of a directory is the name's.
func (e *dirEntry) readInode() (*inode, error) {
	t, err := e.fs.catalog.readNode(e.node)
	if err != nil {
		return nil, err
	}
	n, err := e.fs.readInode(position{node: t, index: int(e.index)})
	if err == nil && e.mode == fs.ModeIrregular {
		n.mode, n.size = n.mode&^inodefs.ModeKind, 0
	}
	return n, err
}

// Info reads the record of the file.
func (e *dirEntry) Info() (fs.FileInfo, error) {
	n, err := e.readInode()
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: e.name, Err: err}
	}
	return fileInfo{e.name, n}, nil
}

// Open opens the file of the entry. A symbolic link is not followed: its target depends on its
// path.
func (e *dirEntry) Open() (fs.File, error) {
	n, err := e.readInode()
	if err == nil && n.IsLink() {
		err = errors.New("is a symbolic link")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: e.name, Err: err}
	}
	return e.fs.openInode(n, e.name)
}

// ReadDir reads the directory of the entry. On an error it also returns the readable part.
func (e *dirEntry) ReadDir() ([]fs.DirEntry, error) {
	n, err := e.readInode()
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: e.name, Err: err}
	}
	return e.fs.readDir(n, e.name)
}
