//go:build linux

package qemu_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// A guest that fills the disk of its node is ended, with the reason.
func TestNodeDiskFull(t *testing.T) {
	t.Parallel()
	spec, dir := warmSpec(t), smallDisk(t, "24m")
	d := open(t, dir)
	defer remove(t, d, spec.ID)
	if _, err := d.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	fill := "dd if=/dev/urandom of=/root/fill bs=1M count=40; sync"
	if r, err := d.Exec(t.Context(), spec.ID, hv.ScriptCommand([]byte(fill), time.Minute)); err == nil {
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

// A VM that fills a disk can be ended while the disk has no free space for a record of it.
func TestEndOnAFullDisk(t *testing.T) {
	t.Parallel()
	spec, dir := warmSpec(t), smallDisk(t, "24m")
	d := open(t, dir)
	defer remove(t, d, spec.ID)
	for _, c := range []struct {
		name string
		end  func() error
	}{
		{"delete", func() error { return d.Delete(t.Context(), spec.ID) }}, // first: what was stopped would boot again
		{"stop", func() error { return d.Stop(t.Context(), spec.ID, hv.StopForce) }},
	} {
		vm, err := d.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		empty := fill(t, dir)
		if err := c.end(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := syscall.Kill(vm.PID, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s: process %d is there still: %v", c.name, vm.PID, err)
		}
		if vm, err := d.Get(t.Context(), spec.ID); err == nil && (vm.Status != hv.Stopped || vm.Failure != "") {
			t.Errorf("%s: %+v", c.name, vm)
		}
		empty()
	}
}
