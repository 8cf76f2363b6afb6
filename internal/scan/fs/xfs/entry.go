package xfs

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// dirEntry is a name in a directory. It has the number of its inode, so opening it needs no path
// lookup.
type dirEntry struct {
	fs          *FS
	name        string
	inodeNumber uint64
	parentInode uint64 // the directory's inode
	mode        fs.FileMode
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

// Info reads the inode.
func (e *dirEntry) Info() (fs.FileInfo, error) {
	n, err := e.fs.entryInode(e)
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: e.name, Err: err}
	}
	return fileInfo{e.name, n}, nil
}

// Open opens the file of the entry. A symbolic link is not followed: its target depends on its
// path.
func (e *dirEntry) Open() (fs.File, error) {
	n, err := e.fs.entryInode(e)
	if err == nil && n.IsLink() {
		err = errors.New("is a symbolic link")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: e.name, Err: err}
	}
	return e.fs.openInode(n, e.parentInode, e.name)
}

// ReadDir reads the directory of the entry. On an error it also returns the readable part.
func (e *dirEntry) ReadDir() ([]fs.DirEntry, error) {
	n, err := e.fs.entryInode(e)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: e.name, Err: err}
	}
	return e.fs.readDir(n, e.parentInode, e.name)
}

// entryInode reads the inode of an entry, and checks its type against that in the directory.
func (f *FS) entryInode(e *dirEntry) (*inode, error) {
	n, err := f.readInode(e.inodeNumber)
	if err == nil && inodefs.FileType(n.mode) != e.mode {
		err = damaged("inode %d is not of the kind that its directory says", e.inodeNumber)
	}
	return n, err
}

// entryTypes maps the file types of entries to modes. The last is that of a whiteout, a character device.
var entryTypes = [...]uint16{
	0, inodefs.ModeRegular, inodefs.ModeDir, inodefs.ModeChar, inodefs.ModeBlock, inodefs.ModeFIFO, inodefs.ModeSocket,
	inodefs.ModeLink, inodefs.ModeChar,
}

// entryMode returns the type of an entry's file. Some file systems have it only in the inode.
func (f *FS) entryMode(kind byte, number uint64) fs.FileMode {
	if kind > 0 && int(kind) < len(entryTypes) {
		return inodefs.FileType(entryTypes[kind])
	}
	n, err := f.readInode(number)
	if err != nil {
		return fs.ModeIrregular // opening it returns the error
	}
	return inodefs.FileType(n.mode)
}
