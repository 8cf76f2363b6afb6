package apfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
)

// Limits of a directory that is read as a whole.
const (
	maxDirEntries   = 1 << 20
	maxDirNameBytes = 32 << 20 // bytes
)

// dirEntry is a name in a directory.
type dirEntry struct {
	fs          *FS
	name        string
	dirInode    uint64 // inode of the directory
	inodeNumber uint64
	mode        fs.FileMode
}

var _ fs.DirEntry = (*dirEntry)(nil)

func (e *dirEntry) Name() string      { return e.name }
func (e *dirEntry) IsDir() bool       { return e.mode.IsDir() }
func (e *dirEntry) Type() fs.FileMode { return e.mode }
func (e *dirEntry) String() string    { return fs.FormatDirEntry(e) }

// readInode reads the inode. A directory with another parent is damage: this prevents directories from
// containing themselves.
func (e *dirEntry) readInode() (*inode, error) {
	n, err := e.fs.readInode(e.inodeNumber)
	if err == nil && n.mode.IsDir() && n.parentInode != e.dirInode {
		return nil, damaged("directory %d is in directory %d, and not where it says to be", e.inodeNumber, e.dirInode)
	}
	return n, err
}

// Info reads the inode.
func (e *dirEntry) Info() (fs.FileInfo, error) {
	n, err := e.readInode()
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: e.name, Err: err}
	}
	return fileInfo{e.name, n}, nil
}

// Open opens the file without another path lookup. A symbolic link is not followed.
func (e *dirEntry) Open() (fs.File, error) {
	n, err := e.readInode()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: e.name, Err: err}
	}
	file, err := e.fs.openInode(n, e.name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: e.name, Err: err}
	}
	return file, nil
}

// ReadDir lists the directory without another path lookup.
func (e *dirEntry) ReadDir() ([]fs.DirEntry, error) {
	n, err := e.readInode()
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: e.name, Err: err}
	}
	list, err := e.fs.listDir(n)
	if err != nil {
		err = &fs.PathError{Op: "readdir", Path: e.name, Err: err}
	}
	return list, err
}

// parseEntry decodes a record of a directory.
func (f *FS) parseEntry(key, value []byte) (dirEntry, error) {
	_, name := nameInKey(key, f.hashedNames)
	if len(name) == 0 || len(value) < 18 || string(name) == "." || string(name) == ".." ||
		strings.ContainsAny(string(name), "/\x00") {
		return dirEntry{}, damaged("a directory has an entry without name or inode")
	}
	k, _ := parseRecordKey(key)
	e := dirEntry{fs: f, name: string(name), dirInode: k.id, inodeNumber: le.Uint64(value)}
	kind, ok := entryType(le.Uint16(value[16:]))
	if !ok {
		if n, err := f.readInode(e.inodeNumber); err == nil {
			kind = n.mode.Type()
		}
	}
	e.mode = kind
	return e, nil
}

// scanRecords calls see with each record of a kind of an inode, from a key on, until it returns false. It
// skips damaged parts, and returns an error for them at the end. Leaves must be in order, so that
// no tree that names a leaf many times has more records than it has bytes.
func (f *FS) scanRecords(from recordKey, see func(key, value []byte) bool) error {
	var bad error
	leaf := -1          // value of c.left in the leaf
	var first recordKey // of that leaf
	c, err := f.tree.seek(from)
	for {
		if errors.Is(err, ErrDamaged) {
			bad = err
			if !c.skipUnreadable() {
				return bad
			}
			err = nil
		}
		if err != nil {
			return err
		}
		if c.atEnd() || !f.isRecordOf(&c, from.id, from.kind) {
			return bad
		}
		if c.leavesLeft != leaf {
			if leaf >= 0 && first.compare(c.key()) <= 0 {
				return damaged("the records of inode %d are not in order", from.id)
			}
			leaf, first = c.leavesLeft, f.parseKey(c.key())
		}
		if !see(c.key(), c.value()) {
			return bad
		}
		err = c.next()
	}
}

// listDir returns the entries of a directory, sorted by name, and an error for unreadable ones.
func (f *FS) listDir(dir *inode) ([]fs.DirEntry, error) {
	if !dir.mode.IsDir() {
		return nil, fmt.Errorf("not a directory")
	}
	var out []fs.DirEntry
	var bad error
	names := 0
	err := f.scanRecords(f.entryKey(dir.stat.Inode, 0, ""), func(key, value []byte) bool {
		if len(out) >= maxDirEntries || names > maxDirNameBytes {
			bad = fmt.Errorf(
				"the directory has more than %d entries, or too long names: the remaining entries are not read",
				maxDirEntries)
			return false
		}
		e, err := f.parseEntry(key, value)
		if err != nil {
			bad = err
			return true
		}
		out = append(out, &e)
		names += len(e.name)
		return true
	})
	if err == nil {
		err = bad
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, err
}

// parseKey decodes the key of a name record or of a plain one.
func (f *FS) parseKey(b []byte) recordKey {
	k, _ := parseRecordKey(b)
	k.hashedNames = f.hashedNames
	if k.kind == recordEntry || k.kind == recordXattr {
		num, name := nameInKey(b, k.kind == recordEntry && f.hashedNames)
		k.hashOrOffset, k.name = num, string(name)
	}
	return k
}

func (f *FS) entryKey(dir, num uint64, name string) recordKey {
	return recordKey{id: dir, kind: recordEntry, hashedNames: f.hashedNames, hashOrOffset: num, name: name}
}

// lookup finds a name in a directory. Where names are hashed the hash only decides where to look
// first: writers and this package may use different versions of Unicode.
func (f *FS) lookup(dir uint64, name string) (dirEntry, error) {
	if !f.hashedNames {
		return f.findEntry(f.entryKey(dir, 0, name), func(_ uint64, have string) (same, more bool) {
			return have == name, false
		})
	}
	want := normalizeName(name, f.foldsCase)
	hash := nameHash(want)
	e, err := f.findEntry(f.entryKey(dir, hash<<hashShift, ""), func(num uint64, have string) (same, more bool) {
		near := num>>hashShift == hash
		return near && normalizeName(have, f.foldsCase) == want, near
	})
	if err == nil || isASCII(want) {
		return e, err
	}
	return f.findEntry(f.entryKey(dir, 0, ""), func(_ uint64, have string) (same, more bool) {
		return normalizeName(have, f.foldsCase) == want, true
	})
}

// findEntry returns the first matching entry from a key on, as long as see returns more.
func (f *FS) findEntry(from recordKey, see func(num uint64, name string) (same, more bool)) (dirEntry, error) {
	var out dirEntry
	found, bad := false, error(nil)
	err := f.scanRecords(from, func(key, value []byte) bool {
		num, name := nameInKey(key, f.hashedNames)
		same, more := see(num, string(name))
		if same {
			out, bad = f.parseEntry(key, value)
			found = true
		}
		return !same && more
	})
	switch {
	case found:
		return out, bad
	case err != nil:
		return out, err
	}
	return out, fs.ErrNotExist
}

// dirHandle is an open directory.
type dirHandle struct {
	fileInfo
	fs *FS

	mu      sync.Mutex // guards the fields below
	entries []fs.DirEntry
	err     error
	loaded  bool
}

var _ fs.ReadDirFile = (*dirHandle)(nil)

// Stat describes the directory.
func (d *dirHandle) Stat() (fs.FileInfo, error) { return d.fileInfo, nil }

func (d *dirHandle) Close() error { return nil }

func (d *dirHandle) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errIsDir}
}

// ReadDir returns the next entries, as fs.ReadDirFile requires.
func (d *dirHandle) ReadDir(n int) ([]fs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.loaded {
		d.entries, d.err = d.fs.listDir(d.inode)
		d.loaded = true
	}
	if n > 0 && len(d.entries) == 0 && d.err == nil {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.entries) {
		n = len(d.entries)
	}
	out := d.entries[:n:n]
	d.entries = d.entries[n:]
	if len(d.entries) > 0 {
		return out, nil
	}
	err := d.err
	d.err = nil
	return out, err
}
