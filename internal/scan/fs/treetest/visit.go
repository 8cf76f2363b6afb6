package treetest

import (
	"errors"
	"io"
	"io/fs"
)

// Visit walks a tree as a scanner does: it calls Info of each entry and reads each twentieth file,
// unless it is large. It returns the number of entries and of bytes read.
func Visit(fsys fs.FS) (entries int, read int64, err error) {
	v := visitor{fsys: fsys, buf: make([]byte, 64<<10)}
	err = v.walk(".")
	return v.entries, v.bytes, err
}

const (
	everyFile = 20
	largeFile = 1 << 20
)

type visitor struct {
	fsys    fs.FS
	buf     []byte
	entries int
	bytes   int64
}

func (w *visitor) walk(dir string) error {
	list, err := fs.ReadDir(w.fsys, dir)
	if err != nil {
		return err
	}
	return w.each(dir, list)
}

func (w *visitor) each(dir string, list []fs.DirEntry) error {
	for _, e := range list {
		w.entries++
		name := dir + "/" + e.Name()
		if dir == "." {
			name = e.Name()
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			if r, ok := e.(interface{ ReadDir() ([]fs.DirEntry, error) }); ok {
				below, err := r.ReadDir()
				if err == nil {
					err = w.each(name, below)
				}
				if err != nil {
					return err
				}
				continue
			}
			if err := w.walk(name); err != nil {
				return err
			}
		case info.Mode().IsRegular() && w.entries%everyFile == 0 && info.Size() < largeFile && fs.ValidPath(name):
			if err := w.read(name, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *visitor) read(name string, e fs.DirEntry) error {
	open := func() (fs.File, error) { return w.fsys.Open(name) }
	if o, ok := e.(interface{ Open() (fs.File, error) }); ok {
		open = o.Open
	}
	f, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for {
		n, err := f.Read(w.buf)
		w.bytes += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
