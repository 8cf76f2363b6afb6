package btrfs

import (
	"fmt"
	"io"
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// FS is a file system as io/fs: the tree of a subvolume. It is safe for concurrent use.
//
// Names may have any bytes but zero. Symbolic links are followed within the tree. For a damaged directory, ReadDir
// returns the readable part together with the error.
type FS struct {
	*shared
	root *inode
	// hidden is a subvolume that is an empty directory, since it is the root of another tree; 0: there is none.
	hidden uint64
	dirs   *inodefs.Cache[uint64, []dirEntry] // of lookups, by ID
	notes  []string
}

// shared is what all trees of a file system have in common.
type shared struct {
	device     *device
	subvolumes *subvolumes
	checksums  treeRoot // the tree of checksums of contents
	hasSums    bool
	extents    *inodefs.Cache[extentPart, []byte] // decompressed ones
}

var (
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)

// Open reads the superblock of the file system in the size bytes of r, which the caller owns and which must not change.
// It returns ErrNotBtrfs when there is none. The root is that of the default subvolume, which the kernel mounts.
func Open(r io.ReaderAt, size int64) (*FS, error) {
	s, err := readSuperblock(r, size)
	if err != nil {
		return nil, err
	}
	d := &device{
		superblock: s, pages: inodefs.NewPages(r, size, s.nodeSize),
		nodes: inodefs.NewCache[uint64](nodeCacheBytes, func(n *node) int { return len(n.b) }),
	}
	if err := d.readChunks(); err != nil {
		return nil, err
	}
	c := &shared{
		device: d, subvolumes: &subvolumes{device: d, byID: map[uint64]*subvolume{}},
		extents: inodefs.NewCache[extentPart](extentCacheBytes, func(b []byte) int { return len(b) }),
	}
	if err := c.findChecksums(); err != nil {
		return nil, err
	}
	id, err := d.defaultSubvolume()
	if err != nil {
		return nil, err
	}
	f, err := c.newFS(id)
	if err != nil {
		return nil, err
	}
	f.addNotes(size)
	return f, nil
}

// newFS returns the tree of a subvolume.
func (c *shared) newFS(id uint64) (*FS, error) {
	f := &FS{shared: c, dirs: inodefs.NewCache[uint64](dirCacheBytes, inodefs.DirBytes[*inode, place])}
	s, err := c.subvolumes.get(id)
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	f.root, _, err = f.readInode(s, subvolumeRoot)
	if err == nil && !f.root.isDir() {
		err = damaged("its root is not a directory")
	}
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	return f, nil
}

// Rest returns the tree of the top level, in which the default subvolume is an empty directory; nil, if the default
// subvolume is the top level, which has everything.
func (f *FS) Rest() (*FS, error) {
	id := f.root.in.id
	if id == topLevel {
		return nil, nil
	}
	rest, err := f.newFS(topLevel)
	if err != nil {
		return nil, err
	}
	rest.hidden = id
	return rest, nil
}

// hides reports whether a subvolume is shown as an empty directory: one that is another root, and the root itself,
// which would contain itself.
func (f *FS) hides(id uint64) bool { return id == f.hidden || id == f.root.in.id }

// addNotes adds notes for the reader of a report.
func (f *FS) addNotes(size int64) {
	s := f.device.superblock
	if s.copyNumber > 0 {
		f.notes = append(f.notes, fmt.Sprintf("its superblock is damaged: copy %d of it is read, which may be older",
			s.copyNumber))
	}
	if s.log != 0 {
		f.notes = append(f.notes, "it was not unmounted: what is only in its log tree is not seen")
	}
	if s.size > uint64(size) {
		f.notes = append(f.notes, fmt.Sprintf("it has %d bytes and its disk only %d", s.size, size))
	}
}

// Notes returns sentences about possible errors in what is read.
func (f *FS) Notes() []string { return f.notes }

// Label returns the name of the file system; "" without one.
func (f *FS) Label() string { return f.device.superblock.label }

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

// volume reads the file system for paths. Entries check the parents of their inodes.
type volume struct{ fs *FS }

var _ inodefs.Volume[*inode] = volume{}

func (v volume) Root() (*inode, error)           { return v.fs.root, nil }
func (v volume) Target(n *inode) (string, error) { return v.fs.readLinkTarget(n) }

func (v volume) Lookup(n *inode, _ uint64, name string) (*inode, error) { return v.fs.lookup(n, name) }

func (v volume) Open(n *inode, _ uint64, name string) (fs.File, error) {
	return v.fs.openInode(n, name)
}

func (v volume) ReadDir(n *inode, _ uint64, name string) ([]fs.DirEntry, error) {
	return v.fs.readDir(n, name)
}
