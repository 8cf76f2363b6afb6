package xfstest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const (
	// imageBytes limits the bytes that the tests write. The image is sparse.
	imageBytes = 4 << 30
	// noMount is the exit status of the child when nothing can be mounted.
	noMount = 77
	// mount mounts the file system, in a mount namespace that ends with the child.
	mount = `mount -o loop "$1" "$2" || exit 77; shift 2; exec "$@"`
)

// Run runs tests of the calling package, by their full names, and fails when one of them fails or does not run.
// It skips where the host cannot have such a file system.
func Run(t *testing.T, tests ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting XFS needs root")
	}
	mkfs, err := exec.LookPath("mkfs.xfs")
	if err != nil {
		t.Skip("mkfs.xfs is not installed")
	}
	dir := t.TempDir()
	image, top := filepath.Join(dir, "image"), filepath.Join(dir, "top")
	err = errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, imageBytes), os.Mkdir(top, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), mkfs, "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.xfs: %v: %s", err, out)
	}
	args := []string{"-c", mount, "sh", image, top, os.Args[0], "-test.v", "-test.run=^(" + strings.Join(tests, "|") +
		")$"}
	cmd := exec.CommandContext(t.Context(), "sh", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "TMPDIR="+top, "GOTMPDIR="+top)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == noMount {
		t.Skipf("no XFS can be mounted here: %s", out)
	}
	if err != nil {
		t.Fatalf("on XFS: %v\n%s", err, out)
	}
	for _, name := range tests {
		if !bytes.Contains(out, []byte("--- PASS: "+name+" ")) {
			t.Errorf("%s did not run on XFS:\n%s", name, out)
		}
	}
}
