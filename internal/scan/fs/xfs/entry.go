package xfs

import (
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// dirEntry is a name in a directory.
type dirEntry = inodefs.DirEntry[*inode, place]

// place identifies the inode of a dirEntry.
type place struct {
	fs          *FS
	inodeNumber uint64
	parentInode uint64 // the directory's inode
}

func (p place) Volume() inodefs.Volume[*inode] { return volume{p.fs} }
func (p place) Parent() uint64                 { return p.parentInode }

// Inode reads the inode, and checks its type against that in the directory.
func (p place) Inode(_ string, mode fs.FileMode) (*inode, error) {
	n, err := p.fs.readInode(p.inodeNumber)
	if err == nil && inodefs.FileType(n.mode) != mode {
		err = damaged("inode %d is not of the kind that its directory says", p.inodeNumber)
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
