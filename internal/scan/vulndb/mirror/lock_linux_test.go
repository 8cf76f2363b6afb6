package mirror

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLockOfOtherUser: a user who may only read a mirror waits for its synchronization, too.
func TestLockOfOtherUser(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Chmod(filepath.Dir(dir), 0o755))
	release, err := lock(t.Context(), dir, true)
	check(t, err)
	defer release()
	check(t, os.Chmod(filepath.Join(dir, lockName), 0o444)) // enough unless the test runs as root
	runtime.LockOSThread()                                  // never unlocked: the thread ends with the test
	if os.Geteuid() == 0 {
		check(t, unix.Setfsuid(65534))
		defer unix.Setfsuid(0) // the directory is removed by this thread
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if release, err := lock(ctx, dir, false); err == nil {
		release()
		t.Error("the mirror is not locked")
	}
}
