package localtemplate

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// TestCopyOfWhatMoved: the copy of a disk that changed during the copy is discarded.
func TestCopyOfWhatMoved(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(from, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	moved := errors.New("moved")
	err := copyDisk(t.Context(), diskCopy{
		source: diskfile.Disk{Path: from}, rawCopyPath: filepath.Join(dir, "copy.img"),
		checksumPath:   filepath.Join(dir, checksumPrefix+"tip"),
		checkUnchanged: func() error { return moved },
	})
	if !errors.Is(err, moved) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// TestRememberAsksTheDisk: checksums of a disk that changes while it is read are not stored under
// the old chain ID.
func TestRememberAsksTheDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	v := templateVersion{Files: map[string]diskContent{"disk.img": contentOf(path, "raw", "tip")}}
	v.createChecksums(t.Context(), dir, func(transfer.Progress) {
		if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
			t.Error(err)
		}
	})
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// TestMoveForgetsFirst: while builtFile of a pull exists, its result was not moved away.
func TestMoveForgetsFirst(t *testing.T) {
	l := &Store{dir: t.TempDir()}
	p := &templatePull{store: l, tempDir: pullPrefix + "00"}
	to, dir := filepath.Join(l.dir, "to"), filepath.Join(l.dir, p.tempDir)
	err := errors.Join(os.MkdirAll(filepath.Join(to, "full"), 0o700), os.MkdirAll(filepath.Join(dir, wholeDir), 0o700),
		os.WriteFile(filepath.Join(dir, builtFile), []byte("[]"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.commitTo(to); err == nil {
		t.Fatal("moved onto what is there")
	}
	if _, err := os.Stat(filepath.Join(dir, builtFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record stays: %v", err)
	}
}
