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
	maxLinks     = 40      // symbolic links on the path to one file
	maxParts     = 1 << 16 // names on the path to one file
	folderMemory = 6 << 20 // of the cached directories, in bytes
	entryMemory  = 64
)

// resolve returns the inode of a path, and that of its directory. Links resolve within the tree
// only: the parent of its root is the root.
func (f *FS) resolve(name string, last follow) (n *inode, parent uint32, err error) {
	if n, err = f.inode(rootInode); err != nil {
		return nil, 0, err
	}
	way := []*inode{n} // from the root
	rest := parts(name)
	links := 0
	for steps := 0; len(rest) > 0; steps++ {
		part := rest[0]
		rest = rest[1:]
		here := way[len(way)-1]
		if part == ".." {
			way = way[:max(1, len(way)-1)]
			continue
		}
		if !here.isDir() {
			return nil, 0, syscall.ENOTDIR
		}
		if n, err = f.child(here, above(way), part); err != nil {
			return nil, 0, err
		}
		if !n.isLink() || len(rest) == 0 && last == stay {
			way = append(way, n)
			continue
		}
		if links++; links > maxLinks || steps > maxParts {
			return nil, 0, syscall.ELOOP
		}
		target, err := f.target(n)
		if err != nil {
			return nil, 0, err
		}
		if strings.HasPrefix(target, "/") {
			way = way[:1]
		}
		rest = append(parts(target), rest...)
	}
	return way[len(way)-1], above(way), nil
}

// follow reports whether a link at the end of a path is followed.
type follow bool

const (
	through follow = true
	stay    follow = false
)

// above returns the parent of the last inode of a path.
func above(way []*inode) uint32 { return way[max(0, len(way)-2)].number }

// parts splits a path.
func parts(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}

// child finds a name in a directory.
func (f *FS) child(n *inode, parent uint32, name string) (*inode, error) {
	entries, err := f.dirEntries(n, parent)
	if k, found := slices.BinarySearchFunc(entries, name,
		func(e entry, name string) int { return strings.Compare(e.name, name) }); found {
		return entries[k].inode()
	}
	if n.flags&flagCaseFold != 0 {
		folded := fold(name)
		for i := range entries {
			if fold(entries[i].name) == folded {
				return entries[i].inode()
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return nil, fs.ErrNotExist
}

// fold normalizes a name for comparison in a directory that ignores case.
func fold(name string) string { return cases.Fold().String(norm.NFD.String(name)) }

// dirEntries returns the entries of a directory, possibly from the cache.
func (f *FS) dirEntries(n *inode, parent uint32) ([]entry, error) {
	if kept, ok := f.dirs.get(n.number); ok {
		return kept, nil
	}
	entries, err := f.list(n, parent)
	if err == nil {
		f.dirs.put(n.number, entries)
	}
	return entries, err
}

// dirCache caches the directories of the last lookups.
type dirCache struct {
	mu   sync.Mutex // guards the fields below
	at   map[uint32]*list.Element
	used *list.List // of *directory, the newest first
	size int
}

// folder is immutable.
type folder struct {
	number  uint32
	entries []entry
	size    int // bytes
}

func newDirCache() *dirCache { return &dirCache{at: map[uint32]*list.Element{}, used: list.New()} }

func (c *dirCache) get(number uint32) ([]entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[number]
	if e == nil {
		return nil, false
	}
	c.used.MoveToFront(e)
	return e.Value.(*folder).entries, true
}

func (c *dirCache) put(number uint32, entries []entry) {
	size := entryMemory
	for i := range entries {
		size += entryMemory + len(entries[i].name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if size > folderMemory/2 || c.at[number] != nil {
		return
	}
	for c.size+size > folderMemory {
		oldest := c.used.Remove(c.used.Back()).(*folder)
		delete(c.at, oldest.number)
		c.size -= oldest.size
	}
	c.at[number] = c.used.PushFront(&folder{number, entries, size})
	c.size += size
}
