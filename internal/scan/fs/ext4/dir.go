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

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const (
	maxDirEntries    = 1 << 20  // of a directory that is read
	maxDirNameBytes  = 32 << 20 // bytes of the names of a directory
	maxDirBlocks     = 1 << 18  // of a directory
	maxDamagedBlocks = 16       // damaged blocks of a directory, before the rest is skipped
	entryHeaderSize  = 8
	tailSize         = 12 // a checksum after the entries of a block, in the form of an entry
	tailKind         = 0xde
)

// dirEntry is a name in a directory.
type dirEntry = inodefs.DirEntry[*inode, place]

// place identifies the inode of a dirEntry.
type place struct {
	fs          *FS
	inodeNumber uint32
	parentInode uint32 // the directory's inode
}

func (p place) Volume() inodefs.Volume[*inode] { return volume{p.fs} }
func (p place) Parent() uint64                 { return uint64(p.parentInode) }

// Inode reads the inode, and checks its type against that in the directory.
func (p place) Inode(_ string, mode fs.FileMode) (*inode, error) {
	n, err := p.fs.readInode(p.inodeNumber)
	if err == nil && inodefs.FileType(n.mode) != mode {
		err = damaged("inode %d is not of the kind that its directory says", p.inodeNumber)
	}
	return n, err
}

// readDir returns the entries of a directory in the order of their names.
func (f *FS) readDir(n *inode, parent uint32, name string) ([]fs.DirEntry, error) {
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
func (f *FS) listDir(n *inode, parent uint32) ([]dirEntry, error) {
	if !n.isDir() {
		return nil, errors.New("not a directory")
	}
	l := dirReader{fs: f, dir: n}
	if err := l.readBlocks(); err != nil {
		return nil, err
	}
	if l.parentInode == 0 && l.firstDamage != nil {
		return nil, l.firstDamage
	}
	if l.parentInode != parent && n.number != rootInode {
		return nil, damaged("directory %d is in directory %d and says that it is in %d", n.number, parent,
			l.parentInode)
	}
	slices.SortStableFunc(l.entries, func(a, b dirEntry) int { return cmp.Compare(a.EntryName, b.EntryName) })
	l.dropDuplicates()
	return l.entries, l.firstDamage
}

// dirReader reads the blocks of a directory.
type dirReader struct {
	fs            *FS
	dir           *inode
	parentInode   uint32 // inode of ".."
	entries       []dirEntry
	nameBytes     int   // bytes of all names
	damagedBlocks int   // damaged blocks
	firstDamage   error // the first damage
}

func (l *dirReader) addDamage(err error) {
	l.damagedBlocks++
	if l.firstDamage == nil {
		l.firstDamage = fmt.Errorf("directory %d: %w", l.dir.number, err)
	}
}

// readBlocks reads all blocks. It fails when no block is readable.
func (l *dirReader) readBlocks() error {
	c, err := l.fs.openContent(l.dir)
	if err != nil {
		return err
	}
	if l.dir.flags&flagInline != 0 {
		return l.readInline(c.inlineData)
	}
	size := l.fs.superblock.blockSize
	seen := map[uint64]bool{}
	into := dirBlockBuffers.Get().(*[]byte)
	defer dirBlockBuffers.Put(into)
	for block, end := uint64(0), uint64((l.dir.size+size-1)/size); block < end; {
		r, err := c.runAt(block)
		if err != nil {
			l.addDamage(err)
			return nil
		}
		stop := min(end, r.fileBlock+r.count)
		for ; block < stop && r.diskBlock != 0; block++ {
			place := r.diskBlock + block - r.fileBlock
			if seen[place] || len(seen) == maxDirBlocks {
				l.addDamage(damaged("it has block %d twice, or more than %d blocks", place, maxDirBlocks))
				return nil
			}
			seen[place] = true
			if !l.readBlock(place, into) {
				return nil
			}
		}
		block = stop
	}
	return nil
}

// dirBlockBuffers has buffers for blocks of directories, each of which a walk reads once.
var dirBlockBuffers = sync.Pool{New: func() any { return new([]byte) }}

// readBlock reads the entries of a block into a temporary buffer. It reports whether to continue.
func (l *dirReader) readBlock(place uint64, into *[]byte) bool {
	b, err := l.fs.readBlockInto(place, into)
	if err == nil {
		l.fs.reads.addDirBlock(place, l.dir.number)
		b, err = l.verifyBlock(b)
	}
	if err == nil && !l.fs.owners.Claim(place, l.dir.number) {
		err = damaged("block %d of it is that of another directory", place)
	}
	if err == nil {
		err = l.readEntries(b)
	}
	if err != nil {
		l.addDamage(err)
	}
	return l.damagedBlocks < maxDamagedBlocks && len(l.entries) < maxDirEntries
}

// verifyBlock verifies the checksum after the entries of a block, and cuts it off. The blocks of an
// index have none there; they look like empty ones.
func (l *dirReader) verifyBlock(b []byte) ([]byte, error) {
	if !l.fs.superblock.hasChecksums() {
		return b, nil
	}
	le := binary.LittleEndian
	tail := b[len(b)-tailSize:]
	if le.Uint32(tail) != 0 || le.Uint16(tail[4:]) != tailSize || tail[6] != 0 || tail[7] != tailKind {
		return b, nil
	}
	b = b[:len(b)-tailSize]
	if checksum(l.fs.checksumSeed(l.dir), b) != le.Uint32(tail[8:]) {
		return nil, damaged("a block of it is not what its checksum says")
	}
	return b, nil
}

// readInline reads a directory that is in its inode: the number of the parent and two lists.
func (l *dirReader) readInline(b []byte) error {
	if len(b) < 4 {
		return damaged("directory %d has %d bytes", l.dir.number, len(b))
	}
	l.parentInode = binary.LittleEndian.Uint32(b)
	for _, part := range [][]byte{b[4:min(blockMapBytes, len(b))], b[min(blockMapBytes, len(b)):]} {
		if err := l.readEntries(part); err != nil {
			l.addDamage(err)
		}
	}
	return nil
}

// readEntries reads a list of entries. All their names share memory.
func (l *dirReader) readEntries(b []byte) error {
	le := binary.LittleEndian
	var names strings.Builder
	type nameSpan struct{ entry, at, end int }
	var places []nameSpan
	damage := error(nil)
	for len(b) > 0 {
		if len(b) < entryHeaderSize {
			damage = damaged("an entry of %d bytes", len(b))
			break
		}
		length, name := recordLength(le.Uint16(b[4:]), l.fs.superblock.blockSize), int(b[6])
		if length < entryHeaderSize || length%4 != 0 || length > len(b) || name+entryHeaderSize > length {
			damage = damaged("an entry of %d bytes with a name of %d", length, name)
			break
		}
		if number := le.Uint32(b); number != 0 && name > 0 {
			text := b[entryHeaderSize : entryHeaderSize+name]
			keep, err := l.isListed(string(text), number)
			if err != nil {
				damage = err
			}
			if keep {
				places = append(places, nameSpan{len(l.entries), names.Len(), names.Len() + name})
				names.Write(text)
				l.entries = append(l.entries,
					dirEntry{EntryType: l.entryMode(b[7], number), At: place{l.fs, number, l.dir.number}})
			}
		}
		b = b[length:]
	}
	all := names.String()
	for _, p := range places {
		l.entries[p.entry].EntryName = all[p.at:p.end]
	}
	return damage
}

// recordLength decodes the length of an entry: a block of 64 KiB needs more than its bits.
func recordLength(v uint16, block int64) int {
	switch {
	case block < maxBlockSize:
		return int(v)
	case v == 0xffff || v == 0:
		return maxBlockSize
	}
	return int(v&0xfffc) | int(v&3)<<16
}

// isListed reports whether a name is listed.
func (l *dirReader) isListed(name string, number uint32) (bool, error) {
	switch {
	case name == ".":
		return false, nil
	case name == "..":
		l.parentInode = number
		return false, nil
	case number == rootInode:
		return false, damaged("a name leads to the root")
	case strings.ContainsAny(name, "/\x00"):
		return false, damaged("it has a name with a slash or a zero in it")
	case len(l.entries) >= maxDirEntries || l.nameBytes+len(name) > maxDirNameBytes:
		l.damagedBlocks = maxDamagedBlocks
		return false,
			fmt.Errorf("the directory has more than %d entries, or too long names: the remaining entries are not read",
				maxDirEntries)
	}
	l.nameBytes += len(name)
	return true, nil
}

// entryTypeModes maps the file types of entries to modes.
var entryTypeModes = [...]uint16{
	0, inodefs.ModeRegular, inodefs.ModeDir, inodefs.ModeChar, inodefs.ModeBlock, inodefs.ModeFIFO, inodefs.ModeSocket,
	inodefs.ModeLink,
}

// entryMode returns the type of an entry's file. Older file systems have it only in the inode.
func (l *dirReader) entryMode(kind byte, number uint32) fs.FileMode {
	if l.fs.superblock.incompat&hasFileType != 0 && kind > 0 && int(kind) < len(entryTypeModes) {
		return inodefs.FileType(entryTypeModes[kind])
	}
	n, err := l.fs.readInode(number)
	if err != nil {
		return fs.ModeIrregular // opening it returns the error
	}
	return inodefs.FileType(n.mode)
}

// dropDuplicates drops names that occur twice, and further names of a directory.
func (l *dirReader) dropDuplicates() {
	dirs := map[uint32]bool{}
	last := ""
	l.entries = slices.DeleteFunc(l.entries, func(e dirEntry) bool {
		twin := e.EntryName == last || e.IsDir() && dirs[e.At.inodeNumber]
		if twin {
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
