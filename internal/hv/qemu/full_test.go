//go:build linux

package qemu_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// A guest that fills the disk of its node is ended, with the reason.
func TestNodeDiskFull(t *testing.T) {
	t.Parallel()
	image, dir := guest(t), smallDir(t)
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

// What fills a disk can be ended while there is no room for a note of it.
func TestEndOnAFullDisk(t *testing.T) {
	t.Parallel()
	spec, dir := warmSpec(t), smallDir(t)
	d := open(t, dir)
	defer remove(t, d, spec.ID)
	for name, end := range map[string]func() error{
		"stop":   func() error { return d.Stop(t.Context(), spec.ID, hv.StopForce) },
		"delete": func() error { return d.Delete(t.Context(), spec.ID) },
	} {
		vm, err := d.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		full := filepath.Join(dir, "full")
		f, err := os.Create(full)
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		_ = f.Close()
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		if err := end(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := syscall.Kill(vm.PID, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s: process %d is there still: %v", name, vm.PID, err)
		}
		if vm, err := d.Get(t.Context(), spec.ID); err == nil && (vm.Status != hv.Stopped || vm.Failure != "") {
			t.Errorf("%s: %+v", name, vm)
		}
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
	}
}

// smallDir is a directory on a file system of 24 MB.
func smallDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m,mode=0755"); err != nil {
		t.Skipf("no small file system here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
