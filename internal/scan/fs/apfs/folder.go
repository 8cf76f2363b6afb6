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
	maxEntries = 1 << 20
	maxNames   = 32 << 20 // bytes
)

// entry is a name in a directory.
type entry struct {
	f    *FS
	name string
	dir  uint64 // inode of the directory
	id   uint64
	kind fs.FileMode
}

var _ fs.DirEntry = (*entry)(nil)

func (e *entry) Name() string      { return e.name }
func (e *entry) IsDir() bool       { return e.kind.IsDir() }
func (e *entry) Type() fs.FileMode { return e.kind }
func (e *entry) String() string    { return fs.FormatDirEntry(e) }

// inode reads the inode. A directory with another parent is damage: this prevents directories from
// containing themselves.
func (e *entry) inode() (*inode, error) {
	n, err := e.f.inode(e.id)
	if err == nil && n.mode.IsDir() && n.parent != e.dir {
		return nil, damaged("directory %d is in directory %d, and not where it says to be", e.id, e.dir)
	}
	return n, err
}

// Info reads the inode.
func (e *entry) Info() (fs.FileInfo, error) {
	n, err := e.inode()
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: e.name, Err: err}
	}
	return info{e.name, n}, nil
}

// Open opens the file without another path lookup. A symbolic link is not followed.
func (e *entry) Open() (fs.File, error) {
	n, err := e.inode()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: e.name, Err: err}
	}
	file, err := e.f.open(n, e.name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: e.name, Err: err}
	}
	return file, nil
}

// ReadDir lists the directory without another path lookup.
func (e *entry) ReadDir() ([]fs.DirEntry, error) {
	n, err := e.inode()
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: e.name, Err: err}
	}
	list, err := e.f.list(n)
	if err != nil {
		err = &fs.PathError{Op: "readdir", Path: e.name, Err: err}
	}
	return list, err
}

// parseEntry decodes a record of a directory.
func (f *FS) parseEntry(key, value []byte) (entry, error) {
	_, name := nameOf(key, f.hashed)
	if len(name) == 0 || len(value) < 18 || string(name) == "." || string(name) == ".." ||
		strings.ContainsAny(string(name), "/\x00") {
		return entry{}, damaged("a directory has an entry without name or inode")
	}
	k, _ := parseRecordKey(key)
	e := entry{f: f, name: string(name), dir: k.id, id: le.Uint64(value)}
	kind, ok := typeOf(le.Uint16(value[16:]))
	if !ok {
		if n, err := f.inode(e.id); err == nil {
			kind = n.mode.Type()
		}
	}
	e.kind = kind
	return e, nil
}

// scan calls see with each record of a kind of an inode, from a key on, until it returns false. It
// skips damaged parts, and returns an error for them at the end. Leaves must be in order, so that
// no tree that names a leaf many times has more records than it has bytes.
func (f *FS) scan(from recordKey, see func(key, value []byte) bool) error {
	var bad error
	leaf := -1          // value of c.left in the leaf
	var first recordKey // of that leaf
	c, err := f.t.seek(from)
	for {
		if errors.Is(err, ErrDamaged) {
			bad = err
			if !c.skip() {
				return bad
			}
			err = nil
		}
		if err != nil {
			return err
		}
		if c.end() || !f.at(&c, from.id, from.kind) {
			return bad
		}
		if c.left != leaf {
			if leaf >= 0 && first.compare(c.key()) <= 0 {
				return damaged("the records of inode %d are not in order", from.id)
			}
			leaf, first = c.left, f.keyOf(c.key())
		}
		if !see(c.key(), c.value()) {
			return bad
		}
		err = c.next()
	}
}

// list returns the entries of a directory, sorted by name, and an error for unreadable ones.
func (f *FS) list(dir *inode) ([]fs.DirEntry, error) {
	if !dir.mode.IsDir() {
		return nil, fmt.Errorf("not a directory")
	}
	var out []fs.DirEntry
	var bad error
	names := 0
	err := f.scan(f.entryKey(dir.stat.Inode, 0, ""), func(key, value []byte) bool {
		if len(out) >= maxEntries || names > maxNames {
			bad = fmt.Errorf(
				"the directory has more than %d entries, or too long names: the remaining entries are not read",
				maxEntries)
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

// keyOf decodes the key of a name record or of a plain one.
func (f *FS) keyOf(b []byte) recordKey {
	k, _ := parseRecordKey(b)
	k.hashed = f.hashed
	if k.kind == recordEntry || k.kind == recordXattr {
		num, name := nameOf(b, k.kind == recordEntry && f.hashed)
		k.num, k.name = num, string(name)
	}
	return k
}

func (f *FS) entryKey(dir, num uint64, name string) recordKey {
	return recordKey{id: dir, kind: recordEntry, hashed: f.hashed, num: num, name: name}
}

// lookup finds a name in a directory. Where names are hashed the hash only decides where to look
// first: writers and this package may use different versions of Unicode.
func (f *FS) lookup(dir uint64, name string) (entry, error) {
	if !f.hashed {
		return f.match(f.entryKey(dir, 0, name), func(_ uint64, have string) (same, more bool) {
			return have == name, false
		})
	}
	want := normal(name, f.folded)
	hash := hashOf(want)
	e, err := f.match(f.entryKey(dir, hash<<hashShift, ""), func(num uint64, have string) (same, more bool) {
		near := num>>hashShift == hash
		return near && normal(have, f.folded) == want, near
	})
	if err == nil || isASCII(want) {
		return e, err
	}
	return f.match(f.entryKey(dir, 0, ""), func(_ uint64, have string) (same, more bool) {
		return normal(have, f.folded) == want, true
	})
}

// match returns the first matching entry from a key on, as long as see returns more.
func (f *FS) match(from recordKey, see func(num uint64, name string) (same, more bool)) (entry, error) {
	var out entry
	found, bad := false, error(nil)
	err := f.scan(from, func(key, value []byte) bool {
		num, name := nameOf(key, f.hashed)
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
	info
	f *FS

	mu   sync.Mutex // guards the fields below
	list []fs.DirEntry
	err  error
	read bool
}

var _ fs.ReadDirFile = (*dirHandle)(nil)

// Stat describes the directory.
func (d *dirHandle) Stat() (fs.FileInfo, error) { return d.info, nil }

func (d *dirHandle) Close() error { return nil }

func (d *dirHandle) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errFolder}
}

// ReadDir returns the next entries, as fs.ReadDirFile requires.
func (d *dirHandle) ReadDir(n int) ([]fs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.read {
		d.list, d.err = d.f.list(d.n)
		d.read = true
	}
	if n > 0 && len(d.list) == 0 && d.err == nil {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.list) {
		n = len(d.list)
	}
	out := d.list[:n:n]
	d.list = d.list[n:]
	if len(d.list) > 0 {
		return out, nil
	}
	err := d.err
	d.err = nil
	return out, err
}
