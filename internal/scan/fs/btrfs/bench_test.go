package btrfs

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// BenchmarkWalk walks 100,000 entries.
func BenchmarkWalk(b *testing.B) {
	tree, image := treetest.NewTree(b, 100_000), filepath.Join(b.TempDir(), "image")
	format(b, image, 4<<30, "--rootdir", tree)
	treetest.BenchmarkWalks(b, "btrfs", tree, func() fs.FS { return open(b, image) })
}
