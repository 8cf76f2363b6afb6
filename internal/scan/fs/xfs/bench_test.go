package xfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// BenchmarkWalk walks 100,000 entries.
func BenchmarkWalk(b *testing.B) {
	tree, image := treetest.NewTree(b, 100_000), filepath.Join(b.TempDir(), "image")
	format(b, image, 4<<30)
	if err := treetest.Fill(b.Context(), image, tree, "true"); errors.Is(err, treetest.ErrNoMount) {
		b.Skip(err)
	} else if err != nil {
		b.Fatal(err)
	}
	treetest.BenchmarkWalks(b, "xfs", tree, func() fs.FS { return open(b, image) })
}
