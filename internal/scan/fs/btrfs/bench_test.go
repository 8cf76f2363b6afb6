package btrfs

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
	tree, image := makeTree(b, 100_000), filepath.Join(b.TempDir(), "image")
	format(b, image, 4<<30, "--rootdir", tree)
	for name, fsys := range map[string]func() fs.FS{
		"btrfs":     func() fs.FS { return open(b, image) }, // with nothing in its caches
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
