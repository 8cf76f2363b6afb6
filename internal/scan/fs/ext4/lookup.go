package ext4

import (
	"container/list"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

const (
	dirCacheBytes      = 6 << 20 // of the cached directories, in bytes
	entryOverheadBytes = 64
)

// lookup finds a name in a directory.
func (f *FS) lookup(n *inode, parent uint32, name string) (*inode, error) {
	if !n.isDir() {
		return nil, syscall.ENOTDIR
	}
	entries, err := f.dirEntries(n, parent)
	if k, found := slices.BinarySearchFunc(entries, name,
		func(e dirEntry, name string) int { return strings.Compare(e.EntryName, name) }); found {
		return f.entryInode(&entries[k])
	}
	if n.flags&flagCaseFold != 0 {
		folded := foldName(name)
		for i := range entries {
			if foldName(entries[i].EntryName) == folded {
				return f.entryInode(&entries[i])
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return nil, fs.ErrNotExist
}

// entryInode reads the inode of an entry, which may be from the cache, where it was read by another view.
func (f *FS) entryInode(e *dirEntry) (*inode, error) {
	return place{f, e.At.inodeNumber, e.At.parentInode}.Inode(e.EntryName, e.EntryType)
}

// foldName normalizes a name for comparison in a directory that ignores case.
func foldName(name string) string { return cases.Fold().String(norm.NFD.String(name)) }

// dirEntries returns the entries of a directory, possibly from the cache.
func (f *FS) dirEntries(n *inode, parent uint32) ([]dirEntry, error) {
	if kept := f.dirs.get(n.number); kept != nil && (f.reads == nil || kept.reads != nil) {
		f.reads.addSet(kept.reads)
		return kept.entries, nil
	}
	lister := f
	if f.reads != nil {
		view := *f
		view.reads = &ReadSet{salt: f.reads.salt}
		lister = &view
	}
	entries, err := lister.listDir(n, parent)
	if err != nil {
		f.reads.addFailure()
		return entries, err
	}
	f.reads.addSet(lister.reads)
	f.dirs.put(&cachedDir{inodeNumber: n.number, entries: entries, reads: lister.reads})
	return entries, nil
}

// dirCache caches the directories of the last lookups.
type dirCache struct {
	mu        sync.Mutex // guards the fields below
	byInode   map[uint32]*list.Element
	recency   *list.List // of *directory, the newest first
	sizeBytes int
}

// cachedDir is immutable.
type cachedDir struct {
	inodeNumber uint32
	entries     []dirEntry
	reads       *ReadSet // what listing it read; nil: not recorded
	sizeBytes   int      // bytes
}

func newDirCache() *dirCache {
	return &dirCache{byInode: map[uint32]*list.Element{}, recency: list.New()}
}

// get returns a directory; nil when it is not cached.
func (c *dirCache) get(number uint32) *cachedDir {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byInode[number]
	if e == nil {
		return nil
	}
	c.recency.MoveToFront(e)
	return e.Value.(*cachedDir)
}

// put adds a directory. One whose reads are recorded replaces one without.
func (c *dirCache) put(dir *cachedDir) {
	size := entryOverheadBytes + dir.reads.sizeBytes()
	for i := range dir.entries {
		size += entryOverheadBytes + len(dir.entries[i].EntryName)
	}
	dir.sizeBytes = size
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.byInode[dir.inodeNumber]
	if size > dirCacheBytes/2 || old != nil && (dir.reads == nil || old.Value.(*cachedDir).reads != nil) {
		return
	}
	if old != nil {
		c.sizeBytes -= c.recency.Remove(old).(*cachedDir).sizeBytes
		delete(c.byInode, dir.inodeNumber)
	}
	for c.sizeBytes+size > dirCacheBytes {
		oldest := c.recency.Remove(c.recency.Back()).(*cachedDir)
		delete(c.byInode, oldest.inodeNumber)
		c.sizeBytes -= oldest.sizeBytes
	}
	c.byInode[dir.inodeNumber] = c.recency.PushFront(dir)
	c.sizeBytes += size
}
