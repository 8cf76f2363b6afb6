package ext4_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// BenchmarkWalk walks 100,000 entries, reads the inode of each, and the content of every twentieth
// file: compared with the same tree as a directory.
func BenchmarkWalk(b *testing.B) {
	treetest.ExtProgram(b, "mke2fs")
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
