package qemu_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

const guestSource = "../../../guest"

// guestImage builds the demo guest once per version of its recipe.
var guestImage = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	err = filepath.WalkDir(guestSource, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(b), b)
		return err
	})
	if err != nil {
		return "", err
	}
	image := filepath.Join(cache, "buildyard", "guest", "test-"+hex.EncodeToString(sum.Sum(nil))[:16]+".qcow2")
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(guestSource, "build.sh"), "--password", "test", image).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the guest: %w\n%s", err, out)
	}
	return image, nil
})

// guest answers the demo guest's disk, or skips where it cannot be had.
func guest(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("boots real guests; not with -short")
	}
	for _, tool := range []string{"qemu-system-x86_64", "qemu-img", "dpkg-deb", "mke2fs", "debugfs", "sfdisk", "cpio"} {
		if _, err := exec.LookPath(tool); err != nil {
			if _, err := os.Stat("/usr/sbin/" + tool); err != nil {
				t.Skipf("%s is not installed (guest/packages.txt lists what is needed)", tool)
			}
		}
	}
	image, err := guestImage()
	if err != nil {
		t.Fatal(err)
	}
	return image
}

var serial atomic.Int64

// newSpec makes a spec that boots image.
func newSpec(image, format string) hv.Spec {
	n := serial.Add(1)
	return hv.Spec{
		ID: fmt.Sprintf("vm-%d", n), Name: fmt.Sprintf("mgmtManaged-test, number %d", n), UUID: newUUID(),
		Disks: []hv.Disk{{Path: image, Format: format}}, CPUs: 1, MemoryMB: 256,
	}
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// open opens a driver over dir and closes it with the test.
func open(t testing.TB, dir string) *qemu.Driver {
	t.Helper()
	d, err := qemu.Open(t.Context(), qemu.Options{Dir: dir, StopTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}
