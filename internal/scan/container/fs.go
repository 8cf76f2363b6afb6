package container

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

var (
	_ fs.ReadDirFS  = (*Tree)(nil)
	_ fs.StatFS     = (*Tree)(nil)
	_ fs.ReadLinkFS = (*Tree)(nil)
)

func baseName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// lookUp returns the node of a name.
func (t *Tree) lookUp(op, name string, followLast bool) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n, err := resolve(t.root, name, followLast, nil, nil)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

// Open opens a file or directory.
func (t *Tree) Open(name string) (fs.File, error) {
	n, err := t.lookUp("open", name, true)
	if err != nil {
		return nil, err
	}
	return t.open(path.Base(name), n), nil
}

func (t *Tree) open(base string, n *node) fs.File {
	if n.mode.IsDir() {
		return &openedDir{info: n.info(base), entries: t.list(n)}
	}
	return &openedFile{tree: t, content: n.file, info: n.info(base)}
}

// Stat follows links.
func (t *Tree) Stat(name string) (fs.FileInfo, error) { return t.stat(name, true) }

// Lstat follows none in the last part of a name.
func (t *Tree) Lstat(name string) (fs.FileInfo, error) { return t.stat(name, false) }

func (t *Tree) stat(name string, followLast bool) (fs.FileInfo, error) {
	n, err := t.lookUp("stat", name, followLast)
	if err != nil {
		return nil, err
	}
	return n.info(path.Base(name)), nil
}

// ReadLink returns the unresolved target of a link.
func (t *Tree) ReadLink(name string) (string, error) {
	n, err := t.lookUp("readlink", name, false)
	if err == nil && n.mode&fs.ModeSymlink == 0 {
		err = &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	if err != nil {
		return "", err
	}
	return n.target, nil
}

// ReadDir lists a directory, the last entries of the archives first: a walk that continues with what it found last
// reads files in the order of the archives.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.lookUp("readdir", name, true)
	if err == nil && !n.mode.IsDir() {
		err = &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a directory")}
	}
	if err != nil {
		return nil, err
	}
	return t.list(n), nil
}

func (t *Tree) list(n *node) []fs.DirEntry {
	out := make([]fs.DirEntry, 0, len(n.children))
	for name, child := range n.children {
		out = append(out, dirEntry{t, name, child})
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int {
		x, y := a.(dirEntry), b.(dirEntry)
		return cmp.Or(cmp.Compare(y.node.layer, x.node.layer), cmp.Compare(y.node.ordinal, x.node.ordinal),
			cmp.Compare(x.name, y.name))
	})
	return out
}

// dirEntry is an entry of a directory.
type dirEntry struct {
	tree *Tree
	name string
	node *node
}

func (e dirEntry) Name() string               { return e.name }
func (e dirEntry) IsDir() bool                { return e.node.mode.IsDir() }
func (e dirEntry) Type() fs.FileMode          { return e.node.mode.Type() }
func (e dirEntry) Info() (fs.FileInfo, error) { return e.node.info(e.name), nil }

// Open opens the file without looking up its path.
func (e dirEntry) Open() (fs.File, error) { return e.tree.open(e.name, e.node), nil }

// ReadDir lists the directory without looking up its path.
func (e dirEntry) ReadDir() ([]fs.DirEntry, error) {
	if !e.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: e.name, Err: errors.New("not a directory")}
	}
	return e.tree.list(e.node), nil
}

// fileInfo describes a file. Times are not known.
type fileInfo struct {
	name string
	mode fs.FileMode
	size int64
}

func (n *node) info(name string) fs.FileInfo {
	i := fileInfo{name: name, mode: n.mode}
	if n.file != nil {
		i.size = n.file.size
	}
	return i
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) Mode() fs.FileMode  { return i.mode }
func (i fileInfo) ModTime() time.Time { return time.Time{} }
func (i fileInfo) IsDir() bool        { return i.mode.IsDir() }
func (i fileInfo) Sys() any           { return nil }

// openedDir is an opened directory.
type openedDir struct {
	info    fs.FileInfo
	entries []fs.DirEntry
}

func (d *openedDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openedDir) Close() error               { return nil }

func (d *openedDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.Name(), Err: errors.New("is a directory")}
}

// ReadDir lists the next entries.
func (d *openedDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.entries)
	} else if len(d.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.entries))
	out := d.entries[:n]
	d.entries = d.entries[n:]
	return out, nil
}

// openedFile is an opened file. Without content it is empty.
type openedFile struct {
	tree    *Tree
	content *content
	info    fs.FileInfo
	pos     int64
}

var (
	_ fs.File     = (*openedFile)(nil)
	_ io.ReaderAt = (*openedFile)(nil)
	_ io.Seeker   = (*openedFile)(nil)
)

func (f *openedFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openedFile) Close() error               { return nil }

func (f *openedFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (f *openedFile) Seek(off int64, whence int) (int64, error) {
	return seek(&f.pos, f.info.Size(), off, whence)
}

// ReadAt reads from memory, and from the layer what is not there.
func (f *openedFile) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fs.ErrInvalid
	}
	if f.content != nil && f.content.err != nil {
		return 0, f.content.err
	}
	for n < len(p) {
		rest := p[n:min(int64(len(p)), int64(n)+max(f.info.Size()-off, 0))]
		if len(rest) == 0 {
			return n, io.EOF
		}
		got := readParts(f.content.parts, rest, off)
		if got == 0 {
			if got, err = f.tree.readAt(f.content, rest, off); err != nil {
				return n, err
			}
		}
		n, off = n+got, off+int64(got)
	}
	return n, nil
}
