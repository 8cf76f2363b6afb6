package xfs

import (
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
)

const (
	maxSymlinks        = 40      // symbolic links on the path to one file
	maxPathParts       = 1 << 16 // names on the path to one file
	dirCacheBytes      = 6 << 20 // of the cached directories, in bytes
	entryOverheadBytes = 72
)

// followMode reports whether a link at the end of a path is followed.
type followMode bool

const (
	followLast   followMode = true
	noFollowLast followMode = false
)

// resolve returns the inode of a path, and that of its directory. Links resolve within the tree
// only: the parent of its root is the root.
func (f *FS) resolve(name string, last followMode) (n *inode, parent uint64, err error) {
	root, err := f.readInode(f.superblock.rootInode)
	if err != nil {
		return nil, 0, err
	}
	way := []*inode{root} // from the root
	above := func() uint64 { return way[max(0, len(way)-2)].number }
	links := 0
	rest := splitPath(name)
	for steps := 0; len(rest) > 0; steps++ {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			way = way[:max(1, len(way)-1)]
			continue
		}
		if n, err = f.lookup(way[len(way)-1], above(), part); err != nil {
			return nil, 0, err
		}
		if !n.isLink() || len(rest) == 0 && last == noFollowLast {
			way = append(way, n)
			continue
		}
		if links++; links > maxSymlinks || steps > maxPathParts {
			return nil, 0, syscall.ELOOP
		}
		target, err := f.readLinkTarget(n)
		if err != nil {
			return nil, 0, err
		}
		if strings.HasPrefix(target, "/") {
			way = way[:1]
		}
		rest = append(splitPath(target), rest...)
	}
	return way[len(way)-1], above(), nil
}

// splitPath splits a path.
func splitPath(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}

// lookup finds a name in a directory.
func (f *FS) lookup(n *inode, parent uint64, name string) (*inode, error) {
	if !n.isDir() {
		return nil, syscall.ENOTDIR
	}
	entries, cached := f.dirs.get(n.number)
	var err error
	if !cached {
		if entries, err = f.listDir(n, parent); err == nil {
			f.dirs.put(n.number, entries)
		}
	}
	k, found := slices.BinarySearchFunc(entries, name,
		func(e dirEntry, name string) int { return strings.Compare(e.name, name) })
	switch {
	case found:
		return f.entryInode(&entries[k])
	case err != nil:
		return nil, err
	}
	return nil, fs.ErrNotExist
}

// dirBytes returns about how many bytes the entries of a directory take.
func dirBytes(entries []dirEntry) int {
	size := entryOverheadBytes
	for i := range entries {
		size += entryOverheadBytes + len(entries[i].name)
	}
	return size
}

// blockOwners maps each block of directories to its directory. Blocks that many directories share would
// make a walk as long as the product of both.
type blockOwners struct {
	mu       sync.Mutex // guards the field below
	byOffset map[int64]uint64
}

// maxOwners limits the blocks whose owners are known.
const maxOwners = 1 << 19

// claim assigns the block at an offset to a directory, unless another one has it.
func (o *blockOwners) claim(off int64, dir uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	owner, known := o.byOffset[off]
	if !known && len(o.byOffset) < maxOwners {
		o.byOffset[off] = dir
	}
	return !known || owner == dir
}

// claimBlock reports whether a block may be that of a directory. In version 5, its header has its owner.
func (f *FS) claimBlock(off int64, dir uint64) bool {
	return f.superblock.hasChecksums() || f.owners.claim(off, dir)
}
