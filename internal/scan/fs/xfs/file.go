package xfs

import (
	"errors"
	"io"
	"io/fs"
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
	i := fileInfo{baseName(name), n}
	var err error
	switch {
	case n.isDir():
		return &dirHandle{info: i, parentInode: parent, fs: f}, nil
	case n.kind() != modeRegular:
		err = errors.New("not a regular file or directory")
	case n.realtime && n.size > 0:
		err = ErrRealtime
	default:
		return &file{io.NewSectionReader(&inodeContent{fs: f, inode: n}, 0, n.size), i}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: err}
}

// dirHandle is an open directory.
type dirHandle struct {
	info        fileInfo
	parentInode uint64
	fs          *FS
	remaining   []fs.DirEntry
	loaded      bool
}

var _ fs.ReadDirFile = (*dirHandle)(nil)

func (d *dirHandle) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *dirHandle) Close() error               { return nil }
func (d *dirHandle) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: errors.New("is a directory")}
}

// ReadDir returns the next n entries, or all that are left. All of a damaged directory that is readable is
// returned with the error, once and only as a whole.
func (d *dirHandle) ReadDir(n int) ([]fs.DirEntry, error) {
	var err error
	if !d.loaded {
		d.remaining, err = d.fs.readDir(d.info.inode, d.parentInode, d.info.name)
		if err != nil && n > 0 {
			return nil, err
		}
		d.loaded = true
	}
	count := len(d.remaining)
	if n > 0 {
		if count == 0 {
			return nil, io.EOF
		}
		count = min(count, n)
	}
	out := d.remaining[:count]
	d.remaining = d.remaining[count:]
	return out, err
}
