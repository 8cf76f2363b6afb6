package hfsplus

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus/hfsplustest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// BenchmarkWalk walks 100,000 entries, reads the record of each, and the content of every twentieth
// file: compared with the same tree as a directory.
func BenchmarkWalk(b *testing.B) {
	tree := b.TempDir()
	var files []hfsplustest.File
	for i := range 500 {
		for k := range 199 {
			f := hfsplustest.File{
				Path: fmt.Sprintf("directory%d/a-file-with-a-name-%d.txt", i, k),
				Data: bytes.Repeat([]byte("text\n"), k*7),
			}
			if k == 0 {
				if err := os.Mkdir(filepath.Join(tree, filepath.Dir(f.Path)), 0o755); err != nil {
					b.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(tree, f.Path), f.Data, 0o600); err != nil {
				b.Fatal(err)
			}
			files = append(files, f)
		}
	}
	image := write(b, hfsplustest.Volume{Name: "Volume", Files: files})
	for name, fsys := range map[string]func() fs.FS{
		"hfsplus":   func() fs.FS { return open(b, image) }, // with nothing in its caches
		"directory": func() fs.FS { return os.DirFS(tree) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				entries, read, err := treetest.Visit(fsys())
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(entries), "entries/op")
				b.ReportMetric(float64(read), "read/op")
			}
		})
	}
}
