package xfs

import (
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
	superblock *superblock
	pages      *pageReader
	dirs       *cache[uint64, []dirEntry] // of lookups, by inode
	owners     *blockOwners
	notes      []string
}

var (
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)

// Open reads the superblock of the file system in the size bytes of r, which the caller owns and
// which must not change. It returns ErrNotXFS when there is none.
func Open(r io.ReaderAt, size int64) (*FS, error) {
	s, err := readSuperblock(r)
	if err != nil {
		return nil, err
	}
	f := &FS{
		superblock: s, pages: newPageReader(r, size, s.blockSize),
		dirs: newCache[uint64](dirCacheBytes, dirBytes), owners: &blockOwners{byOffset: map[int64]uint64{}},
	}
	f.addNotes(size)
	root, err := f.readInode(s.rootInode)
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
	switch {
	case s.logStart == 0:
		f.notes = append(f.notes, "its log is on another device: what is only there is not seen")
	case !f.isLogClean():
		f.notes = append(f.notes, "it was not unmounted: what is only in its log is not seen")
	}
	if s.incompat&incompatNeedsRepair != 0 {
		f.notes = append(f.notes, "xfs_repair began to repair it and did not finish")
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
func (f *FS) lookupPath(op, name string, last followMode) (n *inode, parent uint64, err error) {
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
