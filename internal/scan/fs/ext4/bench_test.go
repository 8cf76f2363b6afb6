package ext4_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// BenchmarkWalk walks 100,000 entries, asks for the inode of each, and reads every
// twentieth file: beside the same tree as a folder.
func BenchmarkWalk(b *testing.B) {
	tool(b, "mke2fs")
	dir := b.TempDir()
	folder, image := filepath.Join(dir, "tree"), filepath.Join(dir, "image")
	if err := os.Mkdir(folder, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := treetest.Make(folder, 100_000); err != nil {
		b.Fatal(err)
	}
	format(b, image, folder, "2G", "-t", "ext4")
	for name, fsys := range map[string]func() fs.FS{
		"ext4":   func() fs.FS { return open(b, image) }, // with nothing in its caches
		"folder": func() fs.FS { return os.DirFS(folder) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := bench{fsys: fsys(), buf: make([]byte, 64<<10)}
				if err := w.walk("."); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(w.entries), "entries/op")
				b.ReportMetric(float64(w.bytes), "read/op")
			}
		})
	}
}

type bench struct {
	fsys           fs.FS
	buf            []byte
	entries, bytes int
}

func (w *bench) walk(dir string) error {
	list, err := fs.ReadDir(w.fsys, dir)
	if err != nil {
		return err
	}
	return w.each(dir, list)
}

func (w *bench) each(dir string, list []fs.DirEntry) error {
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
		case info.Mode().IsRegular() && w.entries%20 == 0 && info.Size() < 1<<20 && fs.ValidPath(name):
			if err := w.read(name, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *bench) read(name string, e fs.DirEntry) error {
	open := func() (fs.File, error) { return w.fsys.Open(name) }
	if o, ok := e.(interface{ Open() (fs.File, error) }); ok {
		open = o.Open
	}
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		n, err := f.Read(w.buf)
		w.bytes += n
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
