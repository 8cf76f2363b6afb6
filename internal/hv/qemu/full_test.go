//go:build linux

package qemu_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// A guest that fills the disk of its node is ended, with the reason.
func TestNodeDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	image, dir := guest(t), t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,mode=0755"); err != nil {
		t.Skipf("no small file system here: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	d := open(t, dir)
	spec := newSpec(image, "qcow2")
	defer remove(t, d, spec.ID)
	if _, err := d.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	fill := "dd if=/dev/urandom of=/root/fill bs=1M count=40; sync"
	if r, err := d.Exec(t.Context(), spec.ID, hv.Script([]byte(fill), time.Minute)); err == nil {
		t.Errorf("the guest wrote it all: %+v", r)
	}
	waitStopped(t, d, spec.ID)
	if vm, _ := d.Get(t.Context(), spec.ID); vm.Failure != "The node's disk is full" {
		t.Errorf("Failure is %q", vm.Failure)
	}
	if err := d.Delete(t.Context(), spec.ID); err != nil {
		t.Errorf("Delete: %v", err)
	}
}
