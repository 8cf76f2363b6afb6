package apfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs/keybag"
	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs"
)

const (
	rootInode   = 2
	maxSymlinks = 40 // symbolic links on the path to one file
)

// FS is the files of a volume or a snapshot. It is safe for concurrent use. All that it caches is freed with it.
type FS struct {
	device      *device
	tree        *tree
	extentTree  *tree          // of a sealed volume; nil where extents are records of t
	cipher      *keybag.Cipher // of an encrypted volume; nil for others
	name        string
	hashedNames bool // names of directories are stored after a hash of them
	foldsCase   bool // names that differ in case only are the same

	inodeCache *generationCache[uint64, *inode]
	blockCache *decmpfs.Cache // decompressed
}

var (
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)

// openFS returns the files of a volume's superblock, as of a transaction.
func (v *Volume) openFS(sb volumeSuperblock, xid uint64, name string) (*FS, error) {
	d := v.container.device.withOwnCache()
	m, err := v.openObjectMap(d)
	if err != nil {
		return nil, err
	}
	f := &FS{
		device: d, cipher: m.cipher, name: name,
		hashedNames: sb.incompatFeatures&(caseInsensitive|normalizationInsensitive) != 0,
		foldsCase:   sb.incompatFeatures&caseInsensitive != 0,
		inodeCache:  newGenerationCache[uint64, *inode](4096),
		blockCache:  decmpfs.NewCache(),
	}
	if f.tree, err = openTreeOfType(d, m, sb.treeType, sb.rootTree, xid); err != nil {
		return nil, fmt.Errorf("open files of volume %q: %w", name, err)
	}
	if sb.incompatFeatures&sealedVolume != 0 && sb.extentTree != 0 {
		if f.extentTree, err = openTreeOfType(d, m, sb.extentTreeType, sb.extentTree, xid); err != nil {
			return nil, fmt.Errorf("open extents of volume %q: %w", name, err)
		}
	}
	if _, err := f.readInode(rootInode); err != nil {
		return nil, fmt.Errorf("open root directory of volume %q: %w", name, err)
	}
	return f, nil
}

// openTreeOfType opens a tree whose type defines how its nodes are named.
func openTreeOfType(d *device, m *omap, kind uint32, root, xid uint64) (*tree, error) {
	switch kind & storageMask {
	case storagePhysical:
		return openTree(d, nil, root, 0)
	case 0:
		return openTree(d, m, root, xid)
	}
	return nil, damaged("a tree is of type %#x", kind)
}

// readInode reads the record of a file or directory.
func (f *FS) readInode(id uint64) (*inode, error) {
	if n, ok := f.inodeCache.get(id); ok {
		return n, nil
	}
	c, err := f.tree.seek(recordKey{id: id, kind: recordInode})
	if err != nil {
		return nil, err
	}
	if c.atEnd() || !f.isRecordOf(&c, id, recordInode) {
		return nil, damaged("inode %d is missing", id)
	}
	n, err := parseInode(id, c.value())
	if err != nil {
		return nil, err
	}
	if n.stat.Compressed() && n.mode.IsRegular() && !n.stat.Dataless() {
		f.setPlainSize(&n)
	}
	f.inodeCache.add(id, &n)
	return &n, nil
}

// isRecordOf reports whether a cursor is at a record of an inode.
func (f *FS) isRecordOf(c *cursor, id uint64, kind uint8) bool {
	k, ok := parseRecordKey(c.key())
	return ok && k.id == id && k.kind == kind
}

// resolve resolves a path and follows symbolic links within the volume; of the last part only if
// follow is set.
func (f *FS) resolve(name string, follow bool) (*inode, error) {
	root, err := f.readInode(rootInode)
	if err != nil {
		return nil, err
	}
	trail := []*inode{root} // the directories down to the current one
	rest, links := name, 0
	for rest != "" {
		part, after, _ := strings.Cut(rest, "/")
		rest = after
		switch part {
		case "", ".":
			continue
		case "..":
			trail = trail[:max(len(trail)-1, 1)]
			continue
		}
		n, err := f.childInode(trail[len(trail)-1], part)
		if err != nil {
			return nil, err
		}
		if n.mode&fs.ModeSymlink == 0 || rest == "" && !follow {
			trail = append(trail, n)
			continue
		}
		if links++; links > maxSymlinks {
			return nil, fmt.Errorf("the path has more than %d symbolic links", maxSymlinks)
		}
		target, err := f.linkTarget(n)
		if err != nil {
			return nil, err
		}
		if path.IsAbs(target) {
			trail = trail[:1]
		}
		rest = target + "/" + rest
	}
	return trail[len(trail)-1], nil
}

// childInode returns the inode of an entry of a directory.
func (f *FS) childInode(dir *inode, name string) (*inode, error) {
	if !dir.mode.IsDir() {
		return nil, fmt.Errorf("a parent of the path is not a directory: %w", fs.ErrNotExist)
	}
	e, err := f.lookup(dir.stat.Inode, name)
	if err != nil {
		return nil, err
	}
	return e.readInode()
}

// findInode returns the inode of a path, with the errors of io/fs.
func (f *FS) findInode(op, name string, follow bool) (*inode, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n, err := f.resolve(name, follow)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

// Open opens a file or directory. Files also implement io.ReaderAt and io.Seeker.
func (f *FS) Open(name string) (fs.File, error) {
	n, err := f.findInode("open", name, true)
	if err != nil {
		return nil, err
	}
	file, err := f.openInode(n, path.Base(name))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

// Stat describes a file or directory, and follows symbolic links.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	n, err := f.findInode("stat", name, true)
	if err != nil {
		return nil, err
	}
	return fileInfo{path.Base(name), n}, nil
}

// Lstat describes a file, directory or symbolic link.
func (f *FS) Lstat(name string) (fs.FileInfo, error) {
	n, err := f.findInode("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return fileInfo{path.Base(name), n}, nil
}

// ReadLink returns the unresolved target of a symbolic link.
func (f *FS) ReadLink(name string) (string, error) {
	n, err := f.findInode("readlink", name, false)
	if err != nil {
		return "", err
	}
	if n.mode&fs.ModeSymlink == 0 {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	target, err := f.linkTarget(n)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return target, nil
}

// ReadDir lists a directory, sorted by name. For a damaged one it returns the readable part with
// the error.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := f.findInode("readdir", name, true)
	if err != nil {
		return nil, err
	}
	list, err := f.listDir(n)
	if err != nil {
		return list, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	return list, nil
}

// fileInfo is the fs.FileInfo of an inode under a name.
type fileInfo struct {
	name  string
	inode *inode
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.inode.size }
func (i fileInfo) Mode() fs.FileMode  { return i.inode.mode }
func (i fileInfo) ModTime() time.Time { return i.inode.modTime }
func (i fileInfo) IsDir() bool        { return i.inode.mode.IsDir() }
func (i fileInfo) Sys() any           { return &i.inode.stat }

var errIsDir = errors.New("is a directory")
