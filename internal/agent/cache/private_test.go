package cache_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/agent/cache"
)

// Only the owner may read guests' disks and memory, also where an earlier agent made the directory.
func TestCacheIsPrivate(t *testing.T) {
	old := filepath.Join(t.TempDir(), "old")
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{old, filepath.Join(t.TempDir(), "new")} {
		if _, err := cache.Open(cache.Options{Dir: dir, Source: &source{}}); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}
