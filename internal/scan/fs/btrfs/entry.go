package btrfs

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
	dir         *inode
	target      uint64 // an inode of the same subvolume, or a subvolume
	isSubvolume bool
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
	n, err := e.inode()
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: e.name, Err: err}
	}
	return fileInfo{e.name, n}, nil
}

// Open opens the file of the entry. A symbolic link is not followed: its target depends on its
// path.
func (e *dirEntry) Open() (fs.File, error) {
	n, err := e.inode()
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
	n, err := e.inode()
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: e.name, Err: err}
	}
	return e.fs.readDir(n, e.name)
}

// inode reads the inode of an entry, and checks its type against that in the directory.
func (e *dirEntry) inode() (*inode, error) {
	if e.isSubvolume {
		return e.subvolumeInode()
	}
	n, c, err := e.fs.readInode(e.dir.in, e.target)
	if err != nil {
		return nil, err
	}
	if inodefs.FileType(n.mode) != e.mode {
		return nil, damaged("inode %d of subvolume %d is not of the kind that its directory says", n.number, n.in.id)
	}
	if !n.isDir() {
		return n, nil
	}
	named, err := hasName(c, n.number, e.dir.number, e.name)
	if err != nil {
		return nil, err
	}
	if !named {
		return nil, damaged("directory %d of subvolume %d says that it is not %q of directory %d", n.number, n.in.id,
			e.name, e.dir.number)
	}
	return n, nil
}

// subvolumeInode returns the root of the subvolume of an entry. If that is elsewhere, the entry is an empty directory,
// as the kernel shows it: a snapshot has the names of subvolumes of the original, and not their content.
func (e *dirEntry) subvolumeInode() (*inode, error) {
	empty := &inode{
		in: e.dir.in, number: emptyDirectory, mode: inodefs.ModeDir | 0o755, links: 1, mtime: e.dir.mtime,
		placeID: placeBit | e.dir.ID() + e.target<<inodeBits,
	}
	s, err := e.fs.subvolumes.get(e.target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return empty, nil
	case err != nil:
		return nil, err
	case s.parent != e.dir.in.id || s.parentDir != e.dir.number || s.name != e.name || e.fs.hides(s.id):
		return empty, nil
	}
	n, _, err := e.fs.readInode(s, subvolumeRoot)
	if err == nil && !n.isDir() {
		err = damaged("the root of subvolume %d is not a directory", s.id)
	}
	return n, err
}
