package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/blobtest"
	"github.com/buildyard/buildyard/internal/blob/disk"
	"github.com/buildyard/buildyard/internal/layout"
)

func open(t *testing.T, base string) blob.Store {
	dir, err := layout.Create(base, layout.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return disk.New(dir)
}

func TestConformance(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) func() blob.Store {
		base := t.TempDir()
		return func() blob.Store { return open(t, base) }
	})
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	base := t.TempDir()
	s := open(t, base)
	foreign := filepath.Join(base, layout.ImagesDir, "0123456789abcdef0123456789abcdef.ank")
	if err := os.WriteFile(foreign, []byte("another product's image"), 0o644); err != nil {
		t.Fatal(err)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
}
