package xfs

import (
	"fmt"
	"io"
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// FS is a file system as io/fs. It is safe for concurrent use.
//
// Names may have any bytes but zero. Symbolic links are followed within the tree. For a damaged
// directory, ReadDir returns the readable part together with the error.
type FS struct {
	superblock *superblock
	pages      *inodefs.Pages
	dirs       *inodefs.Cache[uint64, []dirEntry] // of lookups, by inode
	owners     *inodefs.BlockOwners[uint64]
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
		superblock: s, pages: inodefs.NewPages(r, size, s.blockSize),
		dirs:   inodefs.NewCache[uint64](dirCacheBytes, inodefs.DirBytes[*inode, place]),
		owners: &inodefs.BlockOwners[uint64]{},
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

func (v volume) Root() (*inode, error)           { return v.fs.readInode(v.fs.superblock.rootInode) }
func (v volume) Target(n *inode) (string, error) { return v.fs.readLinkTarget(n) }
func (v volume) Lookup(n *inode, parent uint64, name string) (*inode, error) {
	return v.fs.lookup(n, parent, name)
}

func (v volume) Open(n *inode, parent uint64, name string) (fs.File, error) {
	return v.fs.openInode(n, parent, name)
}

func (v volume) ReadDir(n *inode, parent uint64, name string) ([]fs.DirEntry, error) {
	return v.fs.readDir(n, parent, name)
}
