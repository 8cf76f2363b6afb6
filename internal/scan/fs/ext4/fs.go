package ext4

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// FS is a file system as io/fs. It is safe for concurrent use.
//
// Names may have any bytes but zero. Symbolic links are followed within the tree. For a damaged
// directory, ReadDir returns the readable part together with the error.
type FS struct {
	r          io.ReaderAt
	superblock *superblock
	pages      *inodefs.Pages
	dirs       *dirCache
	owners     *inodefs.BlockOwners[uint32]
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
	f := &FS{
		r: r, superblock: s, pages: inodefs.NewPages(r, size, s.blockSize), dirs: newDirCache(),
		owners: &inodefs.BlockOwners[uint32]{},
	}
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
func (f *FS) Open(name string) (fs.File, error) { return inodefs.Open(volume{f}, name) }

// ReadDir reads a directory.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) { return inodefs.ReadDir(volume{f}, name) }

// Stat describes the file of a path, and follows links.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return inodefs.Stat(volume{f}, name) }

// Lstat describes the file of a path, possibly a symbolic link.
func (f *FS) Lstat(name string) (fs.FileInfo, error) { return inodefs.Lstat(volume{f}, name) }

// ReadLink returns the unresolved target of a symbolic link.
func (f *FS) ReadLink(name string) (string, error) { return inodefs.ReadLink(volume{f}, name) }

// volume reads the file system for paths.
type volume struct{ fs *FS }

var _ inodefs.Volume[*inode] = volume{}

func (v volume) Root() (*inode, error)           { return v.fs.readInode(rootInode) }
func (v volume) Target(n *inode) (string, error) { return v.fs.readLinkTarget(n) }
func (v volume) Lookup(n *inode, parent uint64, name string) (*inode, error) {
	return v.fs.lookup(n, uint32(parent), name)
}

func (v volume) Open(n *inode, parent uint64, name string) (fs.File, error) {
	return v.fs.openInode(n, uint32(parent), name)
}

func (v volume) ReadDir(n *inode, parent uint64, name string) ([]fs.DirEntry, error) {
	return v.fs.readDir(n, uint32(parent), name)
}

// readLinkTarget reads a symbolic link. A short one is stored in the field for block pointers.
func (f *FS) readLinkTarget(n *inode) (string, error) {
	switch {
	case !n.IsLink():
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
	i := inodefs.Info(n, inodefs.BaseName(name))
	switch n.kind() {
	case inodefs.ModeDir:
		return inodefs.OpenDir(i, func() ([]fs.DirEntry, error) { return f.readDir(n, parent, i.Name()) }), nil
	case inodefs.ModeRegular:
		c, err := f.openContent(n)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return &file{inodeContent: c, info: i}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file or directory")}
}
