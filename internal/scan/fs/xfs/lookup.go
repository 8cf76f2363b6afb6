package xfs

import (
	"io/fs"
	"slices"
	"strings"
	"syscall"
)

const (
	dirCacheBytes      = 6 << 20 // of the cached directories, in bytes
	entryOverheadBytes = 72
)

// lookup finds a name in a directory.
func (f *FS) lookup(n *inode, parent uint64, name string) (*inode, error) {
	if !n.isDir() {
		return nil, syscall.ENOTDIR
	}
	entries, cached := f.dirs.Get(n.number)
	var err error
	if !cached {
		if entries, err = f.listDir(n, parent); err == nil {
			f.dirs.Put(n.number, entries)
		}
	}
	k, found := slices.BinarySearchFunc(entries, name,
		func(e dirEntry, name string) int { return strings.Compare(e.EntryName, name) })
	switch {
	case found:
		return entries[k].Inode()
	case err != nil:
		return nil, err
	}
	return nil, fs.ErrNotExist
}

// dirBytes returns about how many bytes the entries of a directory take.
func dirBytes(entries []dirEntry) int {
	size := entryOverheadBytes
	for i := range entries {
		size += entryOverheadBytes + len(entries[i].EntryName)
	}
	return size
}

// claimBlock reports whether a block may be that of a directory. In version 5, its header has its owner.
func (f *FS) claimBlock(off int64, dir uint64) bool {
	return f.superblock.hasChecksums() || f.owners.Claim(uint64(off>>f.superblock.blockLog), dir)
}
