package xfs

import (
	"errors"
	"io"
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// file is an open file. ReadAt is safe for concurrent use.
type file struct {
	*io.SectionReader
	info fileInfo
}

var _ interface {
	fs.File
	io.ReaderAt
	io.Seeker
} = (*file)(nil)

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

// openInode opens an inode that is in a directory.
func (f *FS) openInode(n *inode, parent uint64, name string) (fs.File, error) {
	i := fileInfo{inodefs.BaseName(name), n}
	var err error
	switch {
	case n.isDir():
		return inodefs.OpenDir(i, func() ([]fs.DirEntry, error) { return f.readDir(n, parent, i.name) }), nil
	case n.kind() != inodefs.ModeRegular:
		err = errors.New("not a regular file or directory")
	case n.realtime && n.size > 0:
		err = ErrRealtime
	default:
		return &file{io.NewSectionReader(&inodeContent{fs: f, inode: n}, 0, n.size), i}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: err}
}
