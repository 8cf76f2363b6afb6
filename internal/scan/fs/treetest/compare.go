package treetest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Item describes an entry in a list.
type Item struct {
	Mode   fs.FileMode // with its type
	Size   int64       // of a file
	Sum    [sha256.Size]byte
	Target string // of a symbolic link
	Twin   string // the first name of the same file, in the order of names
	MTime  int64  // of a file, in seconds
}

// List is the content of a tree, by path.
type List map[string]Item

// ListDir reads a directory of this machine.
func ListDir(dir string) (List, error) {
	l, first := List{}, map[uint64]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		it := Item{Mode: st.Mode()}
		switch {
		case st.Mode().IsRegular():
			it.Size, it.MTime = st.Size(), st.ModTime().Unix()
			sys, ok := st.Sys().(*syscall.Stat_t)
			if ok && sys.Nlink > 1 {
				if first[sys.Ino] == "" {
					first[sys.Ino] = name
				}
				it.Twin = first[sys.Ino]
			}
			it.Sum, err = sumFile(p)
		case d.Type() == fs.ModeSymlink:
			it.Target, err = os.Readlink(p)
		}
		l[name] = it
		return err
	})
	return l, err
}

func sumFile(p string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(p)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	return sumOf(f)
}

func sumOf(r io.Reader) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, make([]byte, 256<<10)); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// ListFS reads a file system through the methods of its entries. Names in skip are left out.
func ListFS(fsys fs.FS, skip ...string) (List, error) {
	w := walker{fsys: fsys, list: List{}, first: map[uint64]string{}, skip: skip}
	root, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	return w.list, w.walk(".", root)
}

type walker struct {
	fsys  fs.FS
	list  List
	first map[uint64]string
	skip  []string
}

func (w *walker) walk(dir string, entries []fs.DirEntry) error {
	if !slices.IsSortedFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }) {
		return fmt.Errorf("%s: not in the order of names", dir)
	}
	for _, e := range entries {
		name := dir + "/" + e.Name()
		if dir == "." {
			name = e.Name()
		}
		if slices.Contains(w.skip, name) {
			continue
		}
		it, err := w.item(name, e)
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		w.list[name] = it
		if !e.IsDir() {
			continue
		}
		below, err := children(w.fsys, name, e)
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		if err := w.walk(name, below); err != nil {
			return err
		}
	}
	return nil
}

// children reads a directory by the shortest path.
func children(fsys fs.FS, name string, e fs.DirEntry) ([]fs.DirEntry, error) {
	if r, ok := e.(interface{ ReadDir() ([]fs.DirEntry, error) }); ok {
		return r.ReadDir()
	}
	return fs.ReadDir(fsys, name)
}

func (w *walker) item(name string, e fs.DirEntry) (Item, error) {
	info, err := e.Info()
	if err != nil {
		return Item{}, err
	}
	it := Item{Mode: info.Mode()}
	if info.Mode().Type() != e.Type() || info.Name() != e.Name() {
		return it, fmt.Errorf("the entry says %v and Info %v", e.Type(), info.Mode())
	}
	switch {
	case info.Mode().IsRegular():
		it.Size, it.MTime = info.Size(), info.ModTime().Unix()
		it.Twin = w.twin(name, info)
		it.Sum, err = w.sum(name, e, info.Size())
	case e.Type() == fs.ModeSymlink:
		it.Target, err = fs.ReadLink(w.fsys, name)
	}
	return it, err
}

// twin returns the first name of a file that has several.
func (w *walker) twin(name string, info fs.FileInfo) string {
	id, ok := info.Sys().(interface {
		ID() uint64
		Links() uint64
	})
	if !ok || id.Links() < 2 {
		return ""
	}
	if w.first[id.ID()] == "" {
		w.first[id.ID()] = name
	}
	return w.first[id.ID()]
}

// sum reads a file, and its end once more by ReadAt.
func (w *walker) sum(name string, e fs.DirEntry, size int64) (sum [sha256.Size]byte, err error) {
	open := func() (fs.File, error) { return w.fsys.Open(name) }
	if o, ok := e.(interface{ Open() (fs.File, error) }); ok {
		open = o.Open
	}
	f, err := open()
	if err != nil {
		return sum, err
	}
	defer func() { _ = f.Close() }()
	if sum, err = sumOf(f); err != nil {
		return sum, err
	}
	rs, ok := f.(interface {
		io.ReaderAt
		io.ReadSeeker
	})
	if !ok {
		return sum, errors.New("it has no ReadAt or no Seek")
	}
	return sum, sameEnd(rs, size)
}

// sameEnd compares the end of a file by Seek and Read with the end by ReadAt.
func sameEnd(f interface {
	io.ReaderAt
	io.ReadSeeker
}, size int64,
) error {
	from := max(0, size-5000)
	if at, err := f.Seek(from-size, io.SeekEnd); err != nil || at != from {
		return fmt.Errorf("seek to %d: %d, %w", from, at, err)
	}
	a, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	b := make([]byte, size-from+1)
	n, err := f.ReadAt(b, from)
	if !errors.Is(err, io.EOF) || !bytes.Equal(a, b[:n]) || int64(n) != size-from {
		return fmt.Errorf("ReadAt gives %d bytes of the last %d (%w)", n, size-from, err)
	}
	return nil
}

// Differences compares two lists, the expected one first. It returns how many entries are equal,
// and a sentence for each other one.
func Differences(want, got List) (equal int, out []string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w := want[name]
		g, ok := got[name]
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%q is missing", name))
		case g != w:
			out = append(out, fmt.Sprintf("%q: %s", name, difference(w, g)))
		default:
			equal++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			out = append(out, fmt.Sprintf("%q should not be there", name))
		}
	}
	return equal, out
}

func difference(w, g Item) string {
	switch {
	case g.Mode != w.Mode:
		return fmt.Sprintf("mode %v instead of %v", g.Mode, w.Mode)
	case g.Size != w.Size:
		return fmt.Sprintf("%d bytes instead of %d", g.Size, w.Size)
	case g.Sum != w.Sum:
		return fmt.Sprintf("sha256 %x instead of %x", g.Sum, w.Sum)
	case g.Target != w.Target:
		return fmt.Sprintf("leads to %q instead of %q", g.Target, w.Target)
	case g.Twin != w.Twin:
		return fmt.Sprintf("is the file %q instead of %q", g.Twin, w.Twin)
	}
	return fmt.Sprintf("modified %d instead of %d", g.MTime, w.MTime)
}
