package ext4

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// FS is a file system as io/fs. It is safe for concurrent use.
//
// Names may have any bytes but zero. Symbolic links are followed within the tree. For a damaged
// directory, ReadDir returns the readable part together with the error.
type FS struct {
	r      io.ReaderAt
	super  *super
	pages  *pages
	dirs   *dirCache
	owners *owners
	notes  []string
}

var (
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)

// Open reads the superblock of the file system in the size bytes of r, which the caller owns and
// which must not change. It returns ErrNone when there is none.
func Open(r io.ReaderAt, size int64) (*FS, error) {
	s, err := readSuper(r)
	if err != nil {
		return nil, err
	}
	f := &FS{r: r, super: s, pages: newPages(r, size, s.blockSize), dirs: newDirCache(), owners: newOwners()}
	f.note(size)
	root, err := f.inode(rootInode)
	if err == nil && !root.isDir() {
		err = damaged("its root is not a directory")
	}
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	return f, nil
}

// note adds notes for the reader of a report.
func (f *FS) note(size int64) {
	s := f.super
	if s.incompat&hasRecovery != 0 {
		f.notes = append(f.notes, "it was not unmounted: what is only in its journal is not seen")
	}
	if s.state&stateErrors != 0 {
		f.notes = append(f.notes, "the kernel found errors in it")
	}
	if s.blocks > uint64(size/s.blockSize) {
		f.notes = append(f.notes, fmt.Sprintf("it has %d blocks of %d bytes and its disk only %d bytes", s.blocks,
			s.blockSize, size))
	}
}

// Notes returns sentences about possible errors in what is read.
func (f *FS) Notes() []string { return f.notes }

// Label returns the name of the file system; "" without one.
func (f *FS) Label() string { return f.super.label }

// LastMounted returns the last mount point, such as "/"; "" when unknown.
func (f *FS) LastMounted() string { return f.super.mounted }

// Open opens a file or a directory.
func (f *FS) Open(name string) (fs.File, error) {
	n, parent, err := f.at("open", name, through)
	if err != nil {
		return nil, err
	}
	return f.open(n, parent, name)
}

// ReadDir reads a directory.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	n, parent, err := f.at("readdir", name, through)
	if err != nil {
		return nil, err
	}
	return f.readDir(n, parent, name)
}

// Stat describes the file of a path, and follows links.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	n, _, err := f.at("stat", name, through)
	if err != nil {
		return nil, err
	}
	return info{base(name), n}, nil
}

// Lstat describes the file of a path, possibly a symbolic link.
func (f *FS) Lstat(name string) (fs.FileInfo, error) {
	n, _, err := f.at("lstat", name, stay)
	if err != nil {
		return nil, err
	}
	return info{base(name), n}, nil
}

// ReadLink returns the unresolved target of a symbolic link.
func (f *FS) ReadLink(name string) (string, error) {
	n, _, err := f.at("readlink", name, stay)
	if err != nil {
		return "", err
	}
	target, err := f.target(n)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return target, nil
}

// at resolves a path in the form of io/fs.
func (f *FS) at(op, name string, last follow) (n *inode, parent uint32, err error) {
	if !valid(name) {
		err = fs.ErrInvalid
	} else {
		n, parent, err = f.resolve(name, last)
	}
	if err != nil {
		return nil, 0, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, parent, nil
}

// valid is fs.ValidPath for names of any bytes.
func valid(name string) bool {
	if name == "." {
		return true
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return !strings.Contains(name, "\x00")
}

func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// target reads a symbolic link. A short one is stored in the field for block pointers.
func (f *FS) target(n *inode) (string, error) {
	switch {
	case !n.isLink():
		return "", errors.New("it is not a symbolic link")
	case n.size <= 0 || n.size > f.super.blockSize:
		return "", damaged("a symbolic link of %d bytes", n.size)
	case n.flags&flagEncrypted != 0:
		return "", ErrEncrypted
	}
	b := n.where[:min(blockArea, n.size)]
	if n.size >= blockArea || n.flags&(flagInline|flagExtents) != 0 {
		c, err := f.content(n)
		if err != nil {
			return "", err
		}
		b = make([]byte, n.size)
		if _, err := c.ReadAt(b, 0); err != nil {
			return "", err
		}
	}
	if strings.Contains(string(b), "\x00") {
		return "", damaged("a symbolic link with a zero in it")
	}
	return string(b), nil
}

// open opens an inode that is in a directory.
func (f *FS) open(n *inode, parent uint32, name string) (fs.File, error) {
	i := info{base(name), n}
	switch n.kind() {
	case modeFolder:
		return &dirHandle{info: i, parent: parent, fs: f}, nil
	case modeRegular:
		c, err := f.content(n)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return &file{content: c, info: i}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("it is neither a file nor a directory")}
}
