package ext4

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
)

const (
	maxEntries  = 1 << 20  // of a directory that is read
	maxNames    = 32 << 20 // bytes of the names of a directory
	maxBlocks   = 1 << 18  // of a directory
	maxBad      = 16       // damaged blocks of a directory, before the rest is skipped
	entryHeader = 8
	tailSize    = 12 // a checksum after the entries of a block, in the form of an entry
	tailKind    = 0xde
)

// entry is a name in a directory. It has the number of its inode, so opening it needs no path
// lookup.
type entry struct {
	fs     *FS
	name   string
	number uint32 // of the inode
	parent uint32 // the directory's inode
	mode   fs.FileMode
}

var (
	_ fs.DirEntry = (*entry)(nil)
	_ interface {
		Open() (fs.File, error)
		ReadDir() ([]fs.DirEntry, error)
		Alone() fs.DirEntry
	} = (*entry)(nil)
)

func (e *entry) Name() string      { return e.name }
func (e *entry) IsDir() bool       { return e.mode.IsDir() }
func (e *entry) Type() fs.FileMode { return e.mode }

// Alone returns a copy that does not keep the other entries of its directory in memory, which they
// share.
func (e *entry) Alone() fs.DirEntry {
	c := *e
	c.name = strings.Clone(e.name)
	return &c
}

// Info reads the inode.
func (e *entry) Info() (fs.FileInfo, error) {
	n, err := e.inode()
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: e.name, Err: err}
	}
	return info{e.name, n}, nil
}

// Open opens the file of the entry. A symbolic link is not followed: its target depends on its
// path.
func (e *entry) Open() (fs.File, error) {
	n, err := e.inode()
	if err == nil && n.isLink() {
		err = errors.New("it is a symbolic link")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: e.name, Err: err}
	}
	return e.fs.open(n, e.parent, e.name)
}

// ReadDir reads the directory of the entry. On an error it also returns the readable part.
func (e *entry) ReadDir() ([]fs.DirEntry, error) {
	n, err := e.inode()
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: e.name, Err: err}
	}
	return e.fs.readDir(n, e.parent, e.name)
}

// inode reads the inode, and checks its type against that in the directory.
func (e *entry) inode() (*inode, error) {
	n, err := e.fs.inode(e.number)
	if err == nil && typeOf(n.kind()) != e.mode {
		err = damaged("inode %d is not of the kind that its directory says", e.number)
	}
	return n, err
}

// readDir returns the entries of a directory in the order of their names.
func (f *FS) readDir(n *inode, parent uint32, name string) ([]fs.DirEntry, error) {
	list, err := f.list(n, parent)
	if err != nil {
		err = &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	out := make([]fs.DirEntry, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out, err
}

// list reads a directory. On an error it also returns the readable part.
//
// A directory names its parent, and no directory has two names: so there is one path to each, and
// every walk ends.
func (f *FS) list(n *inode, parent uint32) ([]entry, error) {
	if !n.isDir() {
		return nil, errors.New("it is not a directory")
	}
	l := lister{fs: f, n: n}
	if err := l.read(); err != nil {
		return nil, err
	}
	if l.above == 0 && l.bad != nil {
		return nil, l.bad
	}
	if l.above != parent && n.number != rootInode {
		return nil, damaged("directory %d is in directory %d and says that it is in %d", n.number, parent, l.above)
	}
	slices.SortStableFunc(l.out, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	l.dropTwins()
	return l.out, l.bad
}

// lister reads the blocks of a directory.
type lister struct {
	fs    *FS
	n     *inode
	above uint32 // inode of ".."
	out   []entry
	names int   // bytes of all names
	count int   // damaged blocks
	bad   error // the first damage
}

func (l *lister) damage(err error) {
	l.count++
	if l.bad == nil {
		l.bad = fmt.Errorf("directory %d: %w", l.n.number, err)
	}
}

// read reads all blocks. It fails when no block is readable.
func (l *lister) read() error {
	c, err := l.fs.content(l.n)
	if err != nil {
		return err
	}
	if l.n.flags&flagInline != 0 {
		return l.inline(c.inline)
	}
	size := l.fs.super.blockSize
	seen := map[uint64]bool{}
	into := folderBlocks.Get().(*[]byte)
	defer folderBlocks.Put(into)
	for block, end := uint64(0), uint64((l.n.size+size-1)/size); block < end; {
		r, err := c.run(block)
		if err != nil {
			l.damage(err)
			return nil
		}
		stop := min(end, r.first+r.n)
		for ; block < stop && r.place != 0; block++ {
			place := r.place + block - r.first
			if seen[place] || len(seen) == maxBlocks {
				l.damage(damaged("it has block %d twice, or more than %d blocks", place, maxBlocks))
				return nil
			}
			seen[place] = true
			if !l.block(place, into) {
				return nil
			}
		}
		block = stop
	}
	return nil
}

// folderBlocks has buffers for blocks of directories, each of which a walk reads once.
var folderBlocks = sync.Pool{New: func() any { return new([]byte) }}

// block reads the entries of a block into a temporary buffer. It reports whether to continue.
func (l *lister) block(place uint64, into *[]byte) bool {
	b, err := l.fs.blockInto(place, into)
	if err == nil {
		b, err = l.checked(b)
	}
	if err == nil && !l.fs.owners.claim(place, l.n.number) {
		err = damaged("block %d of it is that of another directory", place)
	}
	if err == nil {
		err = l.entries(b)
	}
	if err != nil {
		l.damage(err)
	}
	return l.count < maxBad && len(l.out) < maxEntries
}

// checked verifies the checksum after the entries of a block, and cuts it off. The blocks of an
// index have none there; they look like empty ones.
func (l *lister) checked(b []byte) ([]byte, error) {
	if !l.fs.super.checksums() {
		return b, nil
	}
	le := binary.LittleEndian
	tail := b[len(b)-tailSize:]
	if le.Uint32(tail) != 0 || le.Uint16(tail[4:]) != tailSize || tail[6] != 0 || tail[7] != tailKind {
		return b, nil
	}
	b = b[:len(b)-tailSize]
	if checksum(l.fs.seedOf(l.n), b) != le.Uint32(tail[8:]) {
		return nil, damaged("a block of it is not what its checksum says")
	}
	return b, nil
}

// inline reads a directory that is in its inode: the number of the parent and two lists.
func (l *lister) inline(b []byte) error {
	if len(b) < 4 {
		return damaged("directory %d has %d bytes", l.n.number, len(b))
	}
	l.above = binary.LittleEndian.Uint32(b)
	for _, part := range [][]byte{b[4:min(blockArea, len(b))], b[min(blockArea, len(b)):]} {
		if err := l.entries(part); err != nil {
			l.damage(err)
		}
	}
	return nil
}

// entries reads a list of entries. All their names share memory.
func (l *lister) entries(b []byte) error {
	le := binary.LittleEndian
	var names strings.Builder
	type place struct{ entry, at, end int }
	var places []place
	damage := error(nil)
	for len(b) > 0 {
		if len(b) < entryHeader {
			damage = damaged("an entry of %d bytes", len(b))
			break
		}
		length, name := recordLength(le.Uint16(b[4:]), l.fs.super.blockSize), int(b[6])
		if length < entryHeader || length%4 != 0 || length > len(b) || name+entryHeader > length {
			damage = damaged("an entry of %d bytes with a name of %d", length, name)
			break
		}
		if number := le.Uint32(b); number != 0 && name > 0 {
			text := b[entryHeader : entryHeader+name]
			keep, err := l.keeps(string(text), number)
			if err != nil {
				damage = err
			}
			if keep {
				places = append(places, place{len(l.out), names.Len(), names.Len() + name})
				names.Write(text)
				l.out = append(l.out, entry{fs: l.fs, number: number, parent: l.n.number, mode: l.mode(b[7], number)})
			}
		}
		b = b[length:]
	}
	all := names.String()
	for _, p := range places {
		l.out[p.entry].name = all[p.at:p.end]
	}
	return damage
}

// recordLength decodes the length of an entry: a block of 64 KiB needs more than its bits.
func recordLength(v uint16, block int64) int {
	switch {
	case block < maxBlock:
		return int(v)
	case v == 0xffff || v == 0:
		return maxBlock
	}
	return int(v&0xfffc) | int(v&3)<<16
}

// keeps reports whether a name is listed.
func (l *lister) keeps(name string, number uint32) (bool, error) {
	switch {
	case name == ".":
		return false, nil
	case name == "..":
		l.above = number
		return false, nil
	case number == rootInode:
		return false, damaged("a name leads to the root")
	case strings.ContainsAny(name, "/\x00"):
		return false, damaged("it has a name with a slash or a zero in it")
	case len(l.out) >= maxEntries || l.names+len(name) > maxNames:
		l.count = maxBad
		return false,
			fmt.Errorf("it has more than %d entries or their names are too long: what is past them is not read",
				maxEntries)
	}
	l.names += len(name)
	return true, nil
}

// kinds maps the file types of entries to modes.
var kinds = [...]uint16{0, modeRegular, modeFolder, modeChar, modeBlock, modeFIFO, modeSocket, modeLink}

// mode returns the type of an entry's file. Older file systems have it only in the inode.
func (l *lister) mode(kind byte, number uint32) fs.FileMode {
	if l.fs.super.incompat&hasFileType != 0 && kind > 0 && int(kind) < len(kinds) {
		return typeOf(kinds[kind])
	}
	n, err := l.fs.inode(number)
	if err != nil {
		return fs.ModeIrregular // opening it returns the error
	}
	return typeOf(n.kind())
}

// dropTwins drops names that occur twice, and further names of a directory.
func (l *lister) dropTwins() {
	folders := map[uint32]bool{}
	last := ""
	l.out = slices.DeleteFunc(l.out, func(e entry) bool {
		twin := e.name == last || e.IsDir() && folders[e.number]
		if twin {
			l.damage(damaged("it has %q twice", e.name))
			return true
		}
		last = e.name
		if e.IsDir() {
			folders[e.number] = true
		}
		return false
	})
}
