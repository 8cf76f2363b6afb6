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
	r          io.ReaderAt
	superblock *superblock
	pages      *pageCache
	dirs       *dirCache
	owners     *blockOwners
	notes      []string
	reads      *ReadSet // of a view; nil: reads are not recorded
}

var (
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)

// Open reads the superblock of the file system in the size bytes of r, which the caller owns and
// which must not change. It returns ErrNotExt when there is none.
func Open(r io.ReaderAt, size int64) (*FS, error) {
	s, err := readSuperblock(r)
	if err != nil {
		return nil, err
	}
	f := &FS{r: r, superblock: s, pages: newPageCache(r, size,
		s.blockSize), dirs: newDirCache(), owners: newBlockOwners()}
	f.addNotes(size)
	root, err := f.readInode(rootInode)
	if err == nil && !root.isDir() {
		err = damaged("its root is not a directory")
	}
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	return f, nil
}

// addNotes adds notes for the reader of a report.
func (f *FS) addNotes(size int64) {
	s := f.superblock
	if s.incompat&hasRecovery != 0 {
		f.notes = append(f.notes, "it was not unmounted: what is only in its journal is not seen")
	}
	if s.state&stateErrors != 0 {
		f.notes = append(f.notes, "the kernel found errors in it")
	}
	if s.blockCount > uint64(size/s.blockSize) {
		f.notes = append(f.notes, fmt.Sprintf("it has %d blocks of %d bytes and its disk only %d bytes", s.blockCount,
			s.blockSize, size))
	}
}

// Notes returns sentences about possible errors in what is read.
func (f *FS) Notes() []string { return f.notes }

// Label returns the name of the file system; "" without one.
func (f *FS) Label() string { return f.superblock.label }

// LastMounted returns the last mount point, such as "/"; "" when unknown.
func (f *FS) LastMounted() string { return f.superblock.lastMounted }

// Open opens a file or a directory.
func (f *FS) Open(name string) (fs.File, error) {
	n, parent, err := f.lookupPath("open", name, followLast)
	if err != nil {
		return nil, err
	}
	return f.openInode(n, parent, name)
}

// ReadDir reads a directory.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	n, parent, err := f.lookupPath("readdir", name, followLast)
	if err != nil {
		return nil, err
	}
	return f.readDir(n, parent, name)
}

// Stat describes the file of a path, and follows links.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	n, _, err := f.lookupPath("stat", name, followLast)
	if err != nil {
		return nil, err
	}
	return fileInfo{baseName(name), n}, nil
}

// Lstat describes the file of a path, possibly a symbolic link.
func (f *FS) Lstat(name string) (fs.FileInfo, error) {
	n, _, err := f.lookupPath("lstat", name, noFollowLast)
	if err != nil {
		return nil, err
	}
	return fileInfo{baseName(name), n}, nil
}

// ReadLink returns the unresolved target of a symbolic link.
func (f *FS) ReadLink(name string) (string, error) {
	n, _, err := f.lookupPath("readlink", name, noFollowLast)
	if err != nil {
		return "", err
	}
	target, err := f.readLinkTarget(n)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return target, nil
}

// lookupPath resolves a path in the form of io/fs.
func (f *FS) lookupPath(op, name string, last followMode) (n *inode, parent uint32, err error) {
	if !isValidPath(name) {
		err = fs.ErrInvalid
	} else {
		n, parent, err = f.resolve(name, last)
	}
	if err != nil {
		return nil, 0, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, parent, nil
}

// isValidPath is fs.ValidPath for names of any bytes.
func isValidPath(name string) bool {
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

func baseName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// readLinkTarget reads a symbolic link. A short one is stored in the field for block pointers.
func (f *FS) readLinkTarget(n *inode) (string, error) {
	switch {
	case !n.isLink():
		return "", errors.New("not a symbolic link")
	case n.size <= 0 || n.size > f.superblock.blockSize:
		return "", damaged("a symbolic link of %d bytes", n.size)
	case n.flags&flagEncrypted != 0:
		return "", ErrEncrypted
	}
	b := n.blockMap[:min(blockMapBytes, n.size)]
	if n.size >= blockMapBytes || n.flags&(flagInline|flagExtents) != 0 {
		c, err := f.openContent(n)
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

// openInode opens an inode that is in a directory.
func (f *FS) openInode(n *inode, parent uint32, name string) (fs.File, error) {
	i := fileInfo{baseName(name), n}
	switch n.kind() {
	case modeDir:
		return &dirHandle{info: i, parentInode: parent, fs: f}, nil
	case modeRegular:
		c, err := f.openContent(n)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return &file{inodeContent: c, info: i}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file or directory")}
}
