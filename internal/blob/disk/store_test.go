package disk_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/blobtest"
	"github.com/buildyard/buildyard/internal/blob/disk"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/tools/crashfs"
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

// TestLayerSurvivesALossOfPower: a layer that was completed is there with all its bytes.
func TestLayerSurvivesALossOfPower(t *testing.T) {
	base := t.TempDir()
	tree, err := crashfs.Watch(base)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	dir, err := layout.Create(base, layout.Hooks{Sync: tree.Sync})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, u := disk.New(dir), blob.Upload{PushSession: "session"}
	l := blobtest.Make(t, blob.KindDisk, 1, 100_000)
	if _, err := s.WritePart(t.Context(), u, 0, bytes.NewReader(l.Frames)); err != nil {
		t.Fatal(err)
	}
	if err := s.CompleteUpload(t.Context(), u, l.Index); err != nil {
		t.Fatal(err)
	}
	for _, keep := range crashfs.Keeps {
		left := filepath.Join(t.TempDir(), "crashed")
		state, err := tree.Crash(keep)
		if err == nil {
			err = state.Write(left)
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err := open(t, left).Open(t.Context(), l.Index.Digest())
		if err != nil {
			t.Fatalf("%s: %v", keep, err)
		}
		layer, err := blob.OpenLayer(f, l.Index.FileSize(), l.Index.Digest())
		if err == nil {
			err = layer.Verify(t.Context())
		}
		if err != nil {
			t.Errorf("%s: %v", keep, err)
		}
		_ = f.Close()
	}
}
