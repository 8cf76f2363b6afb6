package apfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"
)

const (
	rootInode = 2
	mostLinks = 40 // symbolic links on the path to one file
)

// FS is the files of a volume or a snapshot. It is safe for concurrent use.
type FS struct {
	d       *device
	t       *tree
	extents *tree // of a sealed volume; nil where extents are records of t
	name    string
	hashed  bool // names of directories are stored after a hash of them
	folded  bool // names that differ in case only are the same

	inodes *cache[uint64, *inode]
	blocks *cache[blockKey, []byte] // decompressed
}

var (
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)

// open returns the files of a volume's superblock, as of a transaction.
func (v *Volume) open(sb volumeBlock, xid uint64, name string) (*FS, error) {
	m, err := v.objects()
	if err != nil {
		return nil, err
	}
	f := &FS{
		d: v.c.d, name: name,
		hashed: sb.features&(caseInsensitive|normalizationInsensitive) != 0,
		folded: sb.features&caseInsensitive != 0,
		inodes: newCache[uint64, *inode](4096), blocks: newCache[blockKey, []byte](mostPlain),
	}
	if f.t, err = openAs(v.c.d, m, sb.treeType, sb.root, xid); err != nil {
		return nil, fmt.Errorf("open files of volume %q: %w", name, err)
	}
	if sb.features&sealedVolume != 0 && sb.extentTree != 0 {
		if f.extents, err = openAs(v.c.d, m, sb.extentTreeType, sb.extentTree, xid); err != nil {
			return nil, fmt.Errorf("open extents of volume %q: %w", name, err)
		}
	}
	if _, err := f.inode(rootInode); err != nil {
		return nil, fmt.Errorf("open root directory of volume %q: %w", name, err)
	}
	return f, nil
}

// openAs opens a tree whose type defines how its nodes are named.
func openAs(d *device, m *omap, kind uint32, root, xid uint64) (*tree, error) {
	switch kind & storageMask {
	case storagePhysical:
		return openTree(d, nil, root, 0)
	case 0:
		return openTree(d, m, root, xid)
	}
	return nil, damaged("a tree is of type %#x", kind)
}

// inode reads the record of a file or directory.
func (f *FS) inode(id uint64) (*inode, error) {
	if n, ok := f.inodes.get(id); ok {
		return n, nil
	}
	c, err := f.t.seek(recordKey{id: id, kind: recordInode})
	if err != nil {
		return nil, err
	}
	if c.end() || !f.at(&c, id, recordInode) {
		return nil, damaged("inode %d is missing", id)
	}
	n, err := parseInode(id, c.value())
	if err != nil {
		return nil, err
	}
	if n.stat.Compressed() && n.mode.IsRegular() && !n.stat.Dataless() {
		f.plainSize(&n)
	}
	f.inodes.add(id, &n)
	return &n, nil
}

// at reports whether a cursor is at a record of an inode.
func (f *FS) at(c *cursor, id uint64, kind uint8) bool {
	k, ok := parseRecordKey(c.key())
	return ok && k.id == id && k.kind == kind
}

// walk resolves a path and follows symbolic links within the volume; of the last part only if
// follow is set.
func (f *FS) walk(name string, follow bool) (*inode, error) {
	root, err := f.inode(rootInode)
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
		n, err := f.child(trail[len(trail)-1], part)
		if err != nil {
			return nil, err
		}
		if n.mode&fs.ModeSymlink == 0 || rest == "" && !follow {
			trail = append(trail, n)
			continue
		}
		if links++; links > mostLinks {
			return nil, fmt.Errorf("the path has more than %d symbolic links", mostLinks)
		}
		target, err := f.target(n)
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

// child returns the inode of an entry of a directory.
func (f *FS) child(dir *inode, name string) (*inode, error) {
	if !dir.mode.IsDir() {
		return nil, fmt.Errorf("a parent of the path is not a directory: %w", fs.ErrNotExist)
	}
	e, err := f.lookup(dir.stat.Inode, name)
	if err != nil {
		return nil, err
	}
	return e.inode()
}

// find returns the inode of a path, with the errors of io/fs.
func (f *FS) find(op, name string, follow bool) (*inode, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n, err := f.walk(name, follow)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

// Open opens a file or directory. Files also implement io.ReaderAt and io.Seeker.
func (f *FS) Open(name string) (fs.File, error) {
	n, err := f.find("open", name, true)
	if err != nil {
		return nil, err
	}
	file, err := f.open(n, path.Base(name))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

// Stat describes a file or directory, and follows symbolic links.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	n, err := f.find("stat", name, true)
	if err != nil {
		return nil, err
	}
	return info{path.Base(name), n}, nil
}

// Lstat describes a file, directory or symbolic link.
func (f *FS) Lstat(name string) (fs.FileInfo, error) {
	n, err := f.find("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return info{path.Base(name), n}, nil
}

// ReadLink returns the unresolved target of a symbolic link.
func (f *FS) ReadLink(name string) (string, error) {
	n, err := f.find("readlink", name, false)
	if err != nil {
		return "", err
	}
	if n.mode&fs.ModeSymlink == 0 {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	target, err := f.target(n)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return target, nil
}

// ReadDir lists a directory, sorted by name. For a damaged one it returns the readable part with
// the error.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := f.find("readdir", name, true)
	if err != nil {
		return nil, err
	}
	list, err := f.list(n)
	if err != nil {
		return list, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	return list, nil
}

// info is the fs.FileInfo of an inode under a name.
type info struct {
	name string
	n    *inode
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.n.size }
func (i info) Mode() fs.FileMode  { return i.n.mode }
func (i info) ModTime() time.Time { return i.n.modTime }
func (i info) IsDir() bool        { return i.n.mode.IsDir() }
func (i info) Sys() any           { return &i.n.stat }

var errFolder = errors.New("is a directory")
