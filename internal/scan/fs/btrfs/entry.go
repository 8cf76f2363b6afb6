package btrfs

import (
	"errors"
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// dirEntry is a name in a directory.
type dirEntry = inodefs.DirEntry[*inode, place]

// place identifies the inode of a dirEntry.
type place struct {
	fs          *FS
	dir         *inode
	target      uint64 // an inode of the same subvolume, or a subvolume
	isSubvolume bool
}

func (p place) Volume() inodefs.Volume[*inode] { return volume{p.fs} }
func (p place) Parent() uint64                 { return p.dir.ID() }

// Inode reads the inode, and checks its name and type against those in the directory.
func (p place) Inode(name string, mode fs.FileMode) (*inode, error) {
	if p.isSubvolume {
		return p.subvolumeInode(name)
	}
	n, c, err := p.fs.readInode(p.dir.in, p.target)
	if err != nil {
		return nil, err
	}
	if inodefs.FileType(n.mode) != mode {
		return nil, damaged("inode %d of subvolume %d is not of the kind that its directory says", n.number, n.in.id)
	}
	if !n.isDir() {
		return n, nil
	}
	named, err := hasName(c, n.number, p.dir.number, name)
	if err != nil {
		return nil, err
	}
	if !named {
		return nil, damaged("directory %d of subvolume %d says that it is not %q of directory %d", n.number, n.in.id,
			name, p.dir.number)
	}
	return n, nil
}

// subvolumeInode returns the root of the subvolume of an entry. If that is elsewhere, the entry is an empty directory,
// as the kernel shows it: a snapshot has the names of subvolumes of the original, and not their content.
func (p place) subvolumeInode(name string) (*inode, error) {
	empty := &inode{
		in: p.dir.in, number: emptyDirectory, mode: inodefs.ModeDir | 0o755, links: 1, mtime: p.dir.mtime,
		placeID: placeBit | p.dir.ID() + p.target<<inodeBits,
	}
	s, err := p.fs.subvolumes.get(p.target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return empty, nil
	case err != nil:
		return nil, err
	case s.parent != p.dir.in.id || s.parentDir != p.dir.number || s.name != name || p.fs.hides(s.id):
		return empty, nil
	}
	n, _, err := p.fs.readInode(s, subvolumeRoot)
	if err == nil && !n.isDir() {
		err = damaged("the root of subvolume %d is not a directory", s.id)
	}
	return n, err
}
