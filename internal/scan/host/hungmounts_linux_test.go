package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A file system whose program never answers delays neither scans nor real-time changes nor the end.
// The test runs in a process with its own mount table.
func TestAFileSystemThatHangs(t *testing.T) {
	if os.Getenv("HOST_MOUNTS") == "" {
		t.Parallel() // it only waits
		if os.Geteuid() != 0 {
			t.Skip("mounting needs root")
		}
		if _, err := os.Stat("/dev/fuse"); err != nil {
			t.Skip(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestAFileSystemThatHangs$", "-test.v")
		cmd.Env = append(os.Environ(), "HOST_MOUNTS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	b := newBench(t, func(o *Options) { o.NewWatcher, o.debounce = nil, debounce{} })
	b.shell(`mkdir -p node_modules/a; echo '{"name":"a","version":"1.0.0"}' > node_modules/a/package.json`)
	b.start()
	hang := filepath.Join(b.dir, "hang")
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err == nil {
		err = os.Mkdir(hang, 0o755)
	}
	if err == nil {
		err = unix.Mount("hang", hang, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd()))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = fuse.Close() // which ends all that waits for it
		_ = unix.Unmount(hang, unix.MNT_DETACH)
	}()
	b.shell(`mkdir -p node_modules/b; echo '{"name":"b","version":"1.0.0"}' > node_modules/b/package.json`)
	b.expect("npm a 1.0.0 node_modules/a/package.json", "npm b 1.0.0 node_modules/b/package.json")
	b.full()
	if l := b.Status().LastScan; l.Unread != 1 || len(l.FirstUnread) != 1 ||
		l.FirstUnread[0] != hang+": the file system does not respond" {
		t.Errorf("%+v", l)
	}
	if w := strings.Join(b.Status().Warnings, "\n"); strings.Count(w, hang+" does not respond") != 1 {
		t.Error(w)
	}
	if _, err := b.FullScan(FullScanOptions{Path: filepath.Join(hang, "x")}); err == nil ||
		!strings.Contains(err.Error(), "does not respond") {
		t.Error(err)
	}
	b.stopped()
}
