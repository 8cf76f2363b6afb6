package btrfs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const (
	maxDirEntries   = 1 << 20  // of a directory that is read
	maxDirNameBytes = 32 << 20 // bytes of the names of a directory

	dirCacheBytes = 6 << 20 // of the cached directories, in bytes
	dirItemSize   = 30      // before the name
)

// dirItem is a name in a directory.
type dirItem struct {
	location key // of an inode of the subvolume, or of the root of another one
	name     []byte
	kind     byte
	size     int // of the item in bytes
}

func parseDirItem(b []byte) (dirItem, error) {
	if len(b) < dirItemSize {
		return dirItem{}, damaged("an entry of %d bytes", len(b))
	}
	length := int(le.Uint16(b[27:]))
	e := dirItem{location: parseKey(b), kind: b[29], size: dirItemSize + length + int(le.Uint16(b[25:]))}
	if e.size > len(b) {
		return dirItem{}, damaged("an entry of %d bytes in %d", e.size, len(b))
	}
	e.name = b[dirItemSize:][:length]
	return e, nil
}

// readDir returns the entries of a directory in the order of their names.
func (f *FS) readDir(n *inode, name string) ([]fs.DirEntry, error) {
	list, err := f.listDir(n)
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
func (f *FS) listDir(n *inode) ([]dirEntry, error) {
	switch {
	case !n.isDir():
		return nil, errors.New("not a directory")
	case n.number == emptyDirectory:
		return nil, nil
	}
	l := dirReader{fs: f, dir: n}
	if err := l.readItems(); err != nil {
		l.addDamage(err)
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
	entries     []dirEntry
	names       strings.Builder // the names of the entries, which share its memory
	nameEnds    []int           // of each entry, in names
	firstDamage error
}

func (l *dirReader) addDamage(err error) {
	if l.firstDamage == nil {
		l.firstDamage = fmt.Errorf("directory %d of subvolume %d: %w", l.dir.number, l.dir.in.id, err)
	}
}

func (l *dirReader) readItems() error {
	number := l.dir.number
	c, err := l.fs.device.seek(l.dir.in.tree, key{number, kindDirIndex, 0})
	for ; err == nil && c.is(number, kindDirIndex); err = c.next() {
		e, err := parseDirItem(c.data())
		if err != nil {
			return err
		}
		if len(l.entries) == maxDirEntries || l.names.Len()+len(e.name) > maxDirNameBytes {
			return fmt.Errorf("more than %d entries, or too long names: the remaining ones are not read", maxDirEntries)
		}
		l.addEntry(e)
	}
	return err
}

// addEntry adds an entry, unless it is invalid.
func (l *dirReader) addEntry(e dirItem) {
	isSubvolume := e.location.kind == kindRoot
	switch {
	case len(e.name) == 0 || bytes.ContainsAny(e.name, "/\x00") || string(e.name) == "." || string(e.name) == "..":
		l.addDamage(damaged("it has a name that is empty, a link, or with a slash or a zero in it"))
	case !isSubvolume && (e.location.kind != kindInode || e.location.object == subvolumeRoot):
		l.addDamage(damaged("%q leads to an item of type %d of object %d", e.name, e.location.kind, e.location.object))
	default:
		l.names.Write(e.name)
		l.nameEnds = append(l.nameEnds, l.names.Len())
		l.entries = append(l.entries, dirEntry{
			EntryType: entryMode(e.kind), At: place{l.fs, l.dir, e.location.object, isSubvolume},
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

// dropDuplicates drops names that occur twice.
func (l *dirReader) dropDuplicates() {
	last := ""
	l.entries = slices.DeleteFunc(l.entries, func(e dirEntry) bool {
		if e.EntryName == last {
			l.addDamage(damaged("it has %q twice", e.EntryName))
			return true
		}
		last = e.EntryName
		return false
	})
}

// lookup finds a name in a directory.
func (f *FS) lookup(n *inode, name string) (*inode, error) {
	if !n.isDir() {
		return nil, syscall.ENOTDIR
	}
	entries, cached := f.dirs.Get(n.ID())
	var err error
	if !cached {
		if entries, err = f.listDir(n); err == nil {
			f.dirs.Put(n.ID(), entries)
		}
	}
	return inodefs.LookupEntry(entries, name, err)
}

// entryTypes maps the file types of entries to modes.
var entryTypes = [...]uint16{
	0, inodefs.ModeRegular, inodefs.ModeDir, inodefs.ModeChar, inodefs.ModeBlock, inodefs.ModeFIFO, inodefs.ModeSocket,
	inodefs.ModeLink,
}

// entryMode returns the type of an entry's file.
func entryMode(kind byte) fs.FileMode {
	if int(kind) < len(entryTypes) {
		return inodefs.FileType(entryTypes[kind])
	}
	return fs.ModeIrregular // opening it returns an error
}
