package hfsplus

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const (
	maxDirEntries   = 1 << 20  // of a directory that is read
	maxDirNameBytes = 32 << 20 // bytes of the names of a directory
	dirCacheBytes   = 6 << 20  // of the directories that are kept for lookups
)

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

// lookup finds a name in a directory.
func (f *FS) lookup(n *inode, name string) (*inode, error) {
	if !n.isDir() {
		return nil, syscall.ENOTDIR
	}
	entries, cached := f.dirs.Get(n.number)
	var err error
	if !cached {
		if entries, err = f.listDir(n); err == nil {
			f.dirs.Put(n.number, entries)
		}
	}
	return inodefs.LookupEntry(entries, name, err)
}

// listDir reads a directory. On an error it also returns the readable part.
//
// A directory is read only by the record that its thread names, and a linked one only by its first name: so there is
// one path to each, and every walk ends.
func (f *FS) listDir(n *inode) ([]dirEntry, error) {
	if !n.isDir() {
		return nil, errors.New("not a directory")
	}
	p, named, err := f.findThread(n.number)
	if err == nil && named != n.key {
		err = damaged("directory %d is in directory %d, and not where it says to be", n.number, n.key.dir)
	}
	if err != nil {
		return nil, err
	}
	l := dirReader{fs: f, dir: n.number}
	l.readRecords(cursor{position: p, first: p.node.number})
	l.setNames()
	slices.SortStableFunc(l.entries, func(a, b dirEntry) int { return cmp.Compare(a.EntryName, b.EntryName) })
	l.dropDuplicates()
	return l.entries, l.firstDamage
}

// dirReader reads a directory.
type dirReader struct {
	fs          *FS
	dir         uint32
	entries     []dirEntry
	names       []byte // of the entries, which share its memory
	nameEnds    []int  // of each entry, in names
	firstDamage error
}

func (l *dirReader) addDamage(err error) {
	if l.firstDamage == nil {
		l.firstDamage = fmt.Errorf("directory %d: %w", l.dir, err)
	}
}

// readRecords reads the records behind the thread of the directory.
func (l *dirReader) readRecords(c cursor) {
	for {
		ok, err := c.next()
		var key, value []byte
		if err == nil && ok {
			key, value, err = c.record()
		}
		if err != nil {
			l.addDamage(err)
			return
		}
		if !ok || len(key) >= catalogKeySize && be.Uint32(key) != l.dir {
			return
		}
		if len(l.entries) == maxDirEntries || len(l.names) > maxDirNameBytes {
			l.addDamage(fmt.Errorf("more than %d entries, or too long names: the remaining ones are not read",
				maxDirEntries))
			return
		}
		if err := l.addEntry(c.position, key, value); err != nil {
			l.addDamage(err)
		}
	}
}

// addEntry adds the entry of a record.
func (l *dirReader) addEntry(p position, key, value []byte) error {
	_, stored, err := splitCatalogKey(key)
	if err != nil {
		return err
	}
	if err := checkRecord(value); err != nil {
		return err
	}
	if l.isHidden(value) {
		return nil
	}
	start := len(l.names)
	l.names = appendName(l.names, stored)
	switch name := l.names[start:]; string(name) {
	case "", ".", "..":
		l.names = l.names[:start]
		return damaged("it has the name %q", name)
	}
	e := dirEntry{
		EntryType: inodefs.FileType(recordMode(value)), At: place{l.fs, p.node.number, uint16(p.index)},
	}
	err = l.followLink(&e, key, value)
	l.entries, l.nameEnds = append(l.entries, e), append(l.nameEnds, len(l.names))
	return err
}

// isHidden reports whether a record is that of a directory which the system hides.
func (l *dirReader) isHidden(value []byte) bool {
	number := be.Uint32(value[8:])
	return l.dir == rootDir && be.Uint16(value) == recordDir &&
		(number == l.fs.linkedFiles || number == l.fs.linkedDirs)
}

// followLink makes the entry of a name of a linked file or directory that of the file or directory. A further name of
// a directory is one without content.
func (l *dirReader) followLink(e *dirEntry, key, value []byte) error {
	if be.Uint16(value) != recordFile {
		return nil
	}
	f := l.fs
	kind, creator, reference := be.Uint32(value[48:]), be.Uint32(value[52:]), be.Uint32(value[44:])
	dir, prefix := f.linkedFiles, fileLinkPrefix
	switch {
	case kind == typeFileLink && creator == creatorFileLink && f.linkedFiles != 0:
	case kind == typeDirLink && creator == creatorDirLink && f.linkedDirs != 0 &&
		be.Uint16(value[2:])&flagHasLinkChain != 0:
		dir, prefix = f.linkedDirs, dirLinkPrefix
	default:
		return nil
	}
	e.EntryType = fs.ModeIrregular
	p, err := f.findLinked(dir, prefix, reference)
	if err != nil {
		return err
	}
	n, err := f.readInode(p)
	if err != nil {
		return err
	}
	if n.isDir() != (prefix == dirLinkPrefix) {
		return damaged("%s%d is not of the kind that its name says", prefix, reference)
	}
	if n.isDir() {
		name, err := parseCatalogKey(key)
		if err != nil {
			return err
		}
		if first, err := f.isFirstName(n.number, be.Uint32(value[8:]), name); err != nil || !first {
			return err
		}
	}
	e.EntryType, e.At = inodefs.FileType(n.mode), place{f, p.node.number, uint16(p.index)}
	return nil
}

// setNames sets the names of the entries.
func (l *dirReader) setNames() {
	all, start := string(l.names), 0
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
