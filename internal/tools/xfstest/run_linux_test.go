package xfstest_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/tools/xfstest"
)

func TestRun(t *testing.T) { xfstest.Run(t, "TestDirectories") }

// TestDirectories: in the child, temporary directories are on a file system with clones.
func TestDirectories(t *testing.T) {
	var fs unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &fs); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("TMPDIR") != "" && os.Getenv("GOTMPDIR") != "" && fs.Type != unix.XFS_SUPER_MAGIC {
		t.Errorf("the folder is on a file system of type %#x", fs.Type)
	}
}
