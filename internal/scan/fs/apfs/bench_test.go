package apfs_test

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
)

// forest is a tree of 100,000 entries: 9,100 directories with ten files each, of which a walk reads
// one.
func forest() []apfstest.File {
	var out []apfstest.File
	for i := range 9100 {
		dir := fmt.Sprintf("Users/builder/project%02d/node_modules/package-%d/lib", i%50, i)
		for j := range 10 {
			name := fmt.Sprintf("module-%d.js", j)
			if j == 4 {
				name = "package.json"
			}
			out = append(out, apfstest.File{Path: dir + "/" + name, Data: text(100 + (i*31+j*977)%3000)})
		}
	}
	return out
}

// walk walks a tree, and reads the files of interest.
func walk(b *testing.B, fsys fs.FS) (entries, read int) {
	var step func(dir fs.DirEntry, p string)
	step = func(dir fs.DirEntry, p string) {
		var list []fs.DirEntry
		var err error
		if d, ok := dir.(interface{ ReadDir() ([]fs.DirEntry, error) }); ok {
			list, err = d.ReadDir()
		} else {
			list, err = fs.ReadDir(fsys, p)
		}
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range list {
			entries++
			name := p + "/" + e.Name()
			if p == "." {
				name = e.Name()
			}
			if e.IsDir() {
				step(e, name)
				continue
			}
			if e.Name() != "package.json" {
				continue
			}
			var f fs.File
			if o, ok := e.(interface{ Open() (fs.File, error) }); ok {
				f, err = o.Open()
			} else {
				f, err = fsys.Open(name)
			}
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.Copy(io.Discard, f)
			if err != nil {
				b.Fatal(err)
			}
			f.Close()
			read += int(n)
		}
	}
	step(nil, ".")
	return entries, read
}

// BenchmarkWalk compares a walk over an image with that over the same files in a directory.
func BenchmarkWalk(b *testing.B) {
	dir := b.TempDir()
	list := forest()
	b.Run("apfs", func(b *testing.B) {
		img, err := os.Create(filepath.Join(dir, "image"))
		if err != nil {
			b.Fatal(err)
		}
		defer img.Close()
		l, err := apfstest.Write(img, apfstest.Container{Volumes: []apfstest.Volume{{Files: list}}})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			c, err := apfs.Open(img, int64(l.Blocks)*apfstest.BlockSize)
			if err != nil {
				b.Fatal(err)
			}
			f, err := c.Volumes()[0].FS()
			if err != nil {
				b.Fatal(err)
			}
			entries, _ := walk(b, f)
			b.ReportMetric(float64(entries), "entries")
		}
	})
	b.Run("folder", func(b *testing.B) {
		root := filepath.Join(dir, "tree")
		for _, f := range list {
			p := filepath.Join(root, f.Path)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(p, f.Data, 0o644); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			entries, _ := walk(b, os.DirFS(root))
			b.ReportMetric(float64(entries), "entries")
		}
	})
}
