package xfs

import (
	"syscall"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const dirCacheBytes = 6 << 20 // of the cached directories, in bytes

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
	return inodefs.LookupEntry(entries, name, err)
}

// claimBlock reports whether a block may be that of a directory. In version 5, its header has its owner.
func (f *FS) claimBlock(off int64, dir uint64) bool {
	return f.superblock.hasChecksums() || f.owners.Claim(uint64(off>>f.superblock.blockLog), dir)
}
