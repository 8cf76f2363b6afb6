package recordfile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
)

// TestRemoveUnfinished removes what killed processes have left, and nothing else.
func TestRemoveUnfinished(t *testing.T) {
	dir := t.TempDir()
	if err := RemoveUnfinished(filepath.Join(dir, "missing", "*")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"buildyard-backup-1", "buildyard-backup-22", "cloud.backup", "root-token"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("records"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db, err := bbolt.Open(filepath.Join(dir, "buildyard-backup-333"), 0o600, nil) // as Write does
	if err != nil {
		t.Fatal(err)
	}

	if err := RemoveUnfinished(filepath.Join(dir, "buildyard-backup-*")); err != nil {
		t.Error(err)
	}
	if got, want := fileNames(t, dir), []string{"buildyard-backup-333", "cloud.backup", "root-token"}; !slices.Equal(
		got, want) {
		t.Errorf("while a backup is made: %q, want %q", got, want)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := RemoveUnfinished(filepath.Join(dir, "buildyard-backup-*")); err != nil {
		t.Error(err)
	}
	if got, want := fileNames(t, dir), []string{"cloud.backup", "root-token"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	link := filepath.Join(dir, "buildyard-backup-4")
	if err := os.Symlink("cloud.backup", link); err != nil {
		t.Fatal(err)
	}
	if err := RemoveUnfinished(filepath.Join(dir, "buildyard-backup-*")); err == nil {
		t.Error("a symbolic link was followed")
	}
}

func fileNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
