package ext4_test

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// BenchmarkWalk walks 100,000 entries.
func BenchmarkWalk(b *testing.B) {
	tree, image := treetest.NewTree(b, 100_000), filepath.Join(b.TempDir(), "image")
	format(b, image, tree, "2G", "-t", "ext4")
	treetest.BenchmarkWalks(b, "ext4", tree, func() fs.FS { return open(b, image) })
}
