package files_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/registry/files"
	"github.com/buildyard/buildyard/internal/tools/crashfs"
)

// TestReceiptSurvivesALossOfPower: an acknowledged file survives a power loss, in new directories and in place
// of an old file.
func TestReceiptSurvivesALossOfPower(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	base := t.TempDir()
	tree, err := crashfs.Watch(base)
	must(err)
	defer tree.Close()
	root, err := os.OpenRoot(base)
	must(err)
	s, err := files.Open(files.Options{Root: root, Sync: tree.Sync})
	must(err)
	defer s.Close()
	for _, text := range []string{"first", "second"} {
		_, err = s.StoreFile(files.Upload{Name: "a/b/c.txt", Body: bytes.NewReader([]byte(text)), Size: -1})
		must(err)
		for _, keep := range crashfs.Keeps {
			left := filepath.Join(t.TempDir(), "crashed")
			state, err := tree.Crash(keep)
			must(err)
			must(state.Write(left))
			if got, err := os.ReadFile(filepath.Join(left, "a/b/c.txt")); string(got) != text {
				t.Errorf("%s: %q, %v, want %q", keep, got, err, text)
			}
		}
	}
}
