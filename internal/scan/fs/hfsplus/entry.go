package hfsplus

import (
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// dirEntry is a name in a directory.
type dirEntry = inodefs.DirEntry[*inode, place]

// place identifies the record of a dirEntry in the catalog.
type place struct {
	fs    *FS
	node  uint32
	index uint16
}

func (p place) Volume() inodefs.Volume[*inode] { return volume{p.fs} }

// Parent returns 0: records know their directory.
func (p place) Parent() uint64 { return 0 }

// Inode reads the record of the entry. That of a further name of a directory is the name's.
func (p place) Inode(_ string, mode fs.FileMode) (*inode, error) {
	t, err := p.fs.catalog.readNode(p.node)
	if err != nil {
		return nil, err
	}
	n, err := p.fs.readInode(position{node: t, index: int(p.index)})
	if err == nil && mode == fs.ModeIrregular {
		n.mode, n.size = n.mode&^inodefs.ModeKind, 0
	}
	return n, err
}
