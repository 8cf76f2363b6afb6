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

// BenchmarkWalk walks 100,000 entries.
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
	treetest.BenchmarkWalks(b, "hfsplus", tree, func() fs.FS { return open(b, image) }) // the image is in memory
}
