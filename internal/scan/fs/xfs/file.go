package xfs

import (
	"errors"
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// openInode opens an inode that is in a directory.
func (f *FS) openInode(n *inode, parent uint64, name string) (fs.File, error) {
	i := inodefs.Info(n, inodefs.BaseName(name))
	var err error
	switch {
	case n.isDir():
		return inodefs.OpenDir(i, func() ([]fs.DirEntry, error) { return f.readDir(n, parent, i.Name()) }), nil
	case n.kind() != inodefs.ModeRegular:
		err = errors.New("not a regular file or directory")
	case n.realtime && n.size > 0:
		err = ErrRealtime
	default:
		return inodefs.OpenFile(i, &inodeContent{fs: f, inode: n}), nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: err}
}
