package xfs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
)

const (
	maxDirEntries    = 1 << 20  // of a directory that is read
	maxDirNameBytes  = 32 << 20 // bytes of the names of a directory
	maxDirBlocks     = 1 << 18  // of a directory, and of its pieces
	maxDamagedBlocks = 16       // damaged blocks of a directory, before the rest is skipped

	// The entries of a directory are before this offset in it, its index behind.
	dirIndexOffset = 32 << 30

	dirAlignment   = 8
	freeTag        = 0xffff // begins an unused area
	dirTailSize    = 8      // of a block with an index
	dirIndexSize   = 8      // of an entry of that index
	maxInodeNumber = 1<<56 - 1
)

// dirForm is the form of a block with entries.
type dirForm struct {
	headerSize int
	isChecked  bool // it has the header of version 5
	hasIndex   bool // the index of the directory is at its end: it is the only block
}

var dirForms = map[string]dirForm{
	"XD2D": {headerSize: 16},
	"XD2B": {headerSize: 16, hasIndex: true},
	"XDD3": {headerSize: 64, isChecked: true},
	"XDB3": {headerSize: 64, isChecked: true, hasIndex: true},
}

// readDir returns the entries of a directory in the order of their names.
func (f *FS) readDir(n *inode, parent uint64, name string) ([]fs.DirEntry, error) {
	list, err := f.listDir(n, parent)
	if err != nil {
		err = &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	out := make([]fs.DirEntry, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out, err
}

// listDir reads a directory. On an error it also returns the readable part.
//
// A directory names its parent, and no directory has two names: so there is one path to each, and
// every walk ends.
func (f *FS) listDir(n *inode, parent uint64) ([]dirEntry, error) {
	if !n.isDir() {
		return nil, errors.New("not a directory")
	}
	l := dirReader{fs: f, dir: n}
	if n.form == formLocal {
		if err := l.readLocal(n.fork); err != nil {
			l.addDamage(err)
		}
	} else {
		l.readBlocks()
	}
	if l.parentInode == 0 && l.firstDamage != nil {
		return nil, l.firstDamage
	}
	if l.parentInode != parent && n.number != f.superblock.rootInode {
		return nil, damaged("directory %d is in directory %d and says that it is in %d", n.number, parent,
			l.parentInode)
	}
	l.setNames()
	slices.SortStableFunc(l.entries, func(a, b dirEntry) int { return cmp.Compare(a.EntryName, b.EntryName) })
	l.dropDuplicates()
	return l.entries, l.firstDamage
}

// dirReader reads a directory.
type dirReader struct {
	fs          *FS
	dir         *inode
	parentInode uint64 // inode of ".."
	entries     []dirEntry
	names       strings.Builder // the names of the entries, which share its memory
	nameEnds    []int           // of each entry, in names
	isFull      bool            // there are more entries than are read
	firstDamage error
}

func (l *dirReader) addDamage(err error) {
	if l.firstDamage == nil {
		l.firstDamage = fmt.Errorf("directory %d: %w", l.dir.number, err)
	}
}

// readLocal reads a directory that is in its inode: the number of entries, how many of their inodes have 8
// bytes, the parent, and the entries. If an inode has 8 bytes, all have.
func (l *dirReader) readLocal(b []byte) error {
	const counts = 2
	inodeSize := 4
	if len(b) > 1 && b[1] > 0 {
		inodeSize = 8
	}
	if len(b) < counts+inodeSize {
		return damaged("it has %d bytes", len(b))
	}
	number := func(b []byte) uint64 {
		if inodeSize == 4 {
			return uint64(be.Uint32(b))
		}
		return be.Uint64(b) & maxInodeNumber
	}
	count := int(b[0])
	l.parentInode = number(b[counts:])
	b = b[counts+inodeSize:]
	typeSize := l.typeSize()
	for range count {
		const head = 3 // the length of the name, and where a block would have it
		length := 0
		if len(b) > 0 {
			length = int(b[0])
		}
		size := head + length + typeSize + inodeSize
		if size > len(b) {
			return damaged("an entry of %d bytes in %d", size, len(b))
		}
		kind := byte(0)
		if typeSize > 0 {
			kind = b[head+length]
		}
		l.addEntry(b[head:head+length], number(b[head+length+typeSize:]), kind)
		b = b[size:]
	}
	return nil
}

// typeSize returns the bytes of the type of a file in an entry.
func (l *dirReader) typeSize() int {
	if l.fs.superblock.hasFileTypes() {
		return 1
	}
	return 0
}

// readBlocks reads all blocks.
func (l *dirReader) readBlocks() {
	s := l.fs.superblock
	c := &inodeContent{fs: l.fs, inode: l.dir}
	into := dirBlockBuffers.Get().(*[]byte)
	defer dirBlockBuffers.Put(into)
	*into = slices.Grow((*into)[:0], int(s.dirBlockSize()))[:s.dirBlockSize()]
	seen := map[int64]bool{} // offsets of blocks
	perDirBlock := uint64(1) << s.dirBlockLog
	end := uint64((min(l.dir.size, dirIndexOffset) + s.blockSize - 1) >> s.blockLog)
	damagedBlocks, pieces := 0, 0
	for block := uint64(0); block < end && !l.isFull && damagedBlocks < maxDamagedBlocks; {
		r, err := c.runAt(block)
		if err != nil {
			l.addDamage(err)
			return
		}
		if pieces++; pieces > maxDirBlocks {
			l.addDamage(fmt.Errorf("more than %d blocks: the remaining ones are not read", maxDirBlocks))
			return
		}
		if next := r.end() &^ (perDirBlock - 1); r.offset == 0 && next > block {
			block = next // blocks that have no entries left
			continue
		}
		first := r.offset + int64(block-r.fileBlock)<<s.blockLog
		if seen[first] {
			err = damaged("it has the block at byte %d twice", first)
		} else {
			seen[first] = true
			err = l.readBlock(c, block, *into)
		}
		if err != nil {
			l.addDamage(err)
			damagedBlocks++
		}
		block += perDirBlock
	}
}

// dirBlockBuffers has buffers for blocks of directories, each of which a walk reads once.
var dirBlockBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (s *superblock) dirBlockSize() int64 { return s.blockSize << s.dirBlockLog }

// readBlock reads the entries of a block, which may have several pieces on the disk.
func (l *dirReader) readBlock(c *inodeContent, block uint64, into []byte) error {
	s := l.fs.superblock
	first := int64(0)
	for k := range uint64(1) << s.dirBlockLog {
		r, err := c.runAt(block + k)
		if err != nil {
			return err
		}
		off := r.offset + int64(block+k-r.fileBlock)<<s.blockLog
		switch {
		case r.offset == 0:
			return damaged("block %d of it has a hole", block)
		case !l.fs.claimBlock(off, l.dir.number):
			return damaged("its block at byte %d is that of another directory", off)
		case k == 0:
			first = off
		}
	}
	if _, err := c.ReadAt(into, int64(block)<<s.blockLog); err != nil {
		return err
	}
	form, known := dirForms[string(into[:4])]
	if !known || form.isChecked != s.hasChecksums() {
		return damaged("its block at byte %d is not one with entries", first)
	}
	if form.isChecked {
		if err := s.verifyBlock(into, dirHeader, first, l.dir.number); err != nil {
			return err
		}
	}
	end := len(into)
	if form.hasIndex {
		count := uint64(be.Uint32(into[end-dirTailSize:]))
		if count > uint64(end-dirTailSize-form.headerSize)/dirIndexSize {
			return damaged("its index has %d entries", count)
		}
		end -= dirTailSize + int(count)*dirIndexSize
	}
	return l.readEntries(into[form.headerSize:end])
}

// readEntries reads the entries of a block: the number of the inode, the length of the name, the name, and where
// the file system has it the type of the file. Each ends with the offset at which it begins.
func (l *dirReader) readEntries(b []byte) error {
	const (
		head     = 9 // before the name
		tagSize  = 2
		tagStart = 2 // of the length of an unused area
	)
	typeSize := l.typeSize()
	for len(b) > 0 && !l.isFull {
		if len(b) < dirAlignment {
			return damaged("an entry of %d bytes", len(b))
		}
		if be.Uint16(b) == freeTag {
			size := int(be.Uint16(b[tagStart:]))
			if size < dirAlignment || size%dirAlignment != 0 || size > len(b) {
				return damaged("an unused area of %d bytes in %d", size, len(b))
			}
			b = b[size:]
			continue
		}
		length := 0
		if len(b) >= head {
			length = int(b[head-1])
		}
		size := (head + length + typeSize + tagSize + dirAlignment - 1) &^ (dirAlignment - 1)
		if size > len(b) {
			return damaged("an entry of %d bytes in %d", size, len(b))
		}
		kind := byte(0)
		if typeSize > 0 {
			kind = b[head+length]
		}
		l.addEntry(b[head:head+length], be.Uint64(b), kind)
		b = b[size:]
	}
	return nil
}

// addEntry adds an entry, unless it is a link to the directory or its parent, or invalid.
func (l *dirReader) addEntry(name []byte, number uint64, kind byte) {
	switch {
	case string(name) == ".":
	case string(name) == "..":
		if l.parentInode == 0 {
			l.parentInode = number
		}
	case number == l.fs.superblock.rootInode:
		l.addDamage(damaged("a name leads to the root"))
	case len(name) == 0 || bytes.IndexByte(name, '/') >= 0 || bytes.IndexByte(name, 0) >= 0:
		l.addDamage(damaged("it has a name that is empty, or with a slash or a zero in it"))
	case len(l.entries) == maxDirEntries || l.names.Len()+len(name) > maxDirNameBytes:
		l.isFull = true
		l.addDamage(fmt.Errorf("more than %d entries, or too long names: the remaining ones are not read",
			maxDirEntries))
	default:
		l.names.Write(name)
		l.nameEnds = append(l.nameEnds, l.names.Len())
		l.entries = append(l.entries, dirEntry{
			EntryType: l.fs.entryMode(kind, number), At: place{l.fs, number, l.dir.number},
		})
	}
}

// setNames sets the names of the entries.
func (l *dirReader) setNames() {
	all, start := l.names.String(), 0
	for i, end := range l.nameEnds {
		l.entries[i].EntryName = all[start:end]
		start = end
	}
}

// dropDuplicates drops names that occur twice, and further names of a directory.
func (l *dirReader) dropDuplicates() {
	dirs := map[uint64]bool{}
	last := ""
	l.entries = slices.DeleteFunc(l.entries, func(e dirEntry) bool {
		if e.EntryName == last || e.IsDir() && dirs[e.At.inodeNumber] {
			l.addDamage(damaged("it has %q twice", e.EntryName))
			return true
		}
		last = e.EntryName
		if e.IsDir() {
			dirs[e.At.inodeNumber] = true
		}
		return false
	})
}
