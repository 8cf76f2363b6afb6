package hfsplus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const maxTargetBytes = 4 << 10 // of a symbolic link

// openInode opens an inode.
func (f *FS) openInode(n *inode, name string) (fs.File, error) {
	i := inodefs.Info(n, inodefs.BaseName(name))
	if n.isDir() {
		return inodefs.OpenDir(i, func() ([]fs.DirEntry, error) { return f.readDir(n, i.Name()) }), nil
	}
	content, err := f.openContent(n)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return inodefs.OpenFile(i, content), nil
}

// openContent opens the content of a file.
func (f *FS) openContent(n *inode) (io.ReaderAt, error) {
	switch {
	case n.kind() != inodefs.ModeRegular:
		return nil, errors.New("not a regular file or directory")
	case n.isCompressed:
		return f.openCompressed(n)
	}
	return f.openFork(n.number, dataFork, n.data)
}

// readLinkTarget reads a symbolic link.
func (f *FS) readLinkTarget(n *inode) (string, error) {
	switch {
	case !n.IsLink():
		return "", errors.New("not a symbolic link")
	case n.size <= 0 || n.size > maxTargetBytes:
		return "", damaged("a symbolic link of %d bytes", n.size)
	}
	k, err := f.openFork(n.number, dataFork, n.data)
	if err != nil {
		return "", err
	}
	b := make([]byte, n.size)
	if _, err := k.ReadAt(b, 0); err != nil {
		return "", fmt.Errorf("symbolic link: %w", err)
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return "", damaged("a symbolic link with a zero in it")
	}
	return string(b), nil
}
