//go:build linux

package qemu_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// A guest that powers off without a request is not an orderly stop.
func TestGuestPowersOff(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	spec := warmSpec(t)
	defer remove(t, d, spec.ID)
	if _, err := d.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Exec(t.Context(), spec.ID, hv.ScriptCommand([]byte("poweroff -f"), time.Minute)); !errors.Is(err,
		hv.ErrNotRunning) {
		t.Errorf("Exec: %v, want ErrNotRunning", err)
	}
	waitStopped(t, d, spec.ID)
	if vm, _ := d.Get(t.Context(), spec.ID); !strings.Contains(vm.Failure, "powered itself off") {
		t.Errorf("Failure is %q", vm.Failure)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := false
	d.SetStep(func(name string) {
		if name == "start: pid" { // it can start again: a boot from a disk of before is tried elsewhere
			begun = true
			cancel()
		}
	})
	if _, err := d.Start(ctx, spec); !begun || !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v, QEMU was started: %v", err, begun)
	}
}

// A disk that cannot be used completely is reported, and nothing is changed.
func TestGrowFileSystemReports(t *testing.T) {
	fulltest.Only(t) // TestConformance grows a disk
	t.Parallel()
	d := open(t, t.TempDir())
	spec := warmSpec(t)
	spec.DiskBytes = 2 << 30
	defer remove(t, d, spec.ID)
	if _, err := d.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ before, says string }{
		{"mv /sbin/sfdisk /root/", "neither growpart nor sfdisk and partx"},
		{
			"mv /root/sfdisk /sbin/; echo start=3000000,size=2048 | sfdisk --force --no-reread -a /dev/vda && partx " +
				"-a --nr 2 /dev/vda", "partition vda2 is behind",
		},
		{
			"partx -d --nr 2 /dev/vda && sfdisk --force --no-reread --delete /dev/vda 2 && mv /sbin/resize2fs /root/",
			"no resize2fs",
		},
		{"mv /root/resize2fs /sbin/", ""},
	} {
		if r, err := d.Exec(t.Context(), spec.ID, hv.ScriptCommand([]byte(step.before), time.Minute)); err != nil ||
			r.Code != 0 {
			t.Fatalf("%s: %+v, %v", step.before, r, err)
		}
		r, err := d.Exec(t.Context(), spec.ID, hv.GrowFileSystemCommand(time.Minute))
		if err != nil || (r.Code == 0) != (step.says == "") || !strings.Contains(string(r.Stderr), step.says) {
			t.Errorf("want %q: %d, %s, %v", step.says, r.Code, r.Stderr, err)
		}
	}
}

func TestProbeBoot(t *testing.T) {
	t.Parallel()
	guest(t)
	d := open(t, t.TempDir())
	h, err := d.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !qemu.Boots(d, t.Context(), h.Machine, "tcg") {
		t.Error("the boot sector does not come through under TCG")
	}
	if qemu.Boots(d, t.Context(), h.Machine, "no-such-accelerator") {
		t.Error("the boot sector comes through without an accelerator")
	}
}

// Untrusted images that refer to other files are refused before QEMU sees them.
func TestImages(t *testing.T) {
	t.Parallel()
	guesttest.Disk(t)
	dir := t.TempDir()
	base := filepath.Join(dir, "base.qcow2")
	if err := qemu.CreateDisk(t.Context(), base, "qcow2", 8<<20); err != nil {
		t.Fatal(err)
	}
	info, err := qemu.ImageInfo(t.Context(), base, "qcow2")
	if err != nil || info.VirtualSize != 8<<20 || info.Format != "qcow2" || info.ActualSize <= 0 {
		t.Errorf("ImageInfo: %+v, %v", info, err)
	}
	if err := qemu.CreateDisk(t.Context(), base, "qcow2", 8<<20); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("CreateDisk over an image: %v, want a refusal", err)
	}
	overlay := filepath.Join(dir, "overlay.qcow2")
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-f", "qcow2", "-F", "qcow2", "-b", base,
		overlay).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := qemu.ImageInfo(t.Context(), overlay, "qcow2"); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("an image with a backing file: %v, want a refusal", err)
	}
	d := open(t, filepath.Join(dir, "vms"))
	for path, format := range map[string]string{overlay: "qcow2", base: "vmdk", dir: "raw", filepath.Join(dir,
		"none"): "raw"} {
		spec := newSpec(path, format)
		if _, err := d.Start(t.Context(), spec); err == nil {
			t.Errorf("%s as %s was started", path, format)
		}
		remove(t, d, spec.ID)
	}
	// Read as raw, a qcow2 file is just bytes: nothing in it is trusted.
	info, err = qemu.ImageInfo(t.Context(), overlay, "raw")
	if err != nil || info.Format != "raw" {
		t.Errorf("ImageInfo as raw: %+v, %v", info, err)
	}
}
