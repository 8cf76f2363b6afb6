//go:build linux

package qemu_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// smallDisk mounts a small file system for a test.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755,size="+size); err != nil {
		t.Skipf("no small file system here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill uses all free space, and returns a function that releases it.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	_ = f.Close()
	return func() { _ = os.Remove(f.Name()) }
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// at returns a hook that calls do at one step.
func at(step hv.SaveStep, do func() error) func(hv.SaveStep) error {
	return func(s hv.SaveStep) error {
		if s != step {
			return nil
		}
		return do()
	}
}

var errStep = errors.New("this step is made to fail")

// A save fails at each step because the disk is full: the guest continues, nothing is left, and the
// next save is complete.
func TestSaveWithoutSpace(t *testing.T) {
	t.Parallel()
	spec, vms, saves := warmSpec(t), smallDisk(t, "64m"), smallDisk(t, "160m")
	d := open(t, vms)
	vm := start(t, d, spec)
	free := func() {}
	full := func(dir string) func() error {
		return func() error { free = fill(t, dir); return nil }
	}
	type shortage struct {
		name string
		dir  string
		at   string // step of the driver, or of the save
		full string
	}
	for _, c := range fulltest.Some(t, 2, []shortage{
		{"overlay", saves, "", vms},
		{"record", saves, "save: overlays", vms},
		{"state", saves, string(hv.SavePrepared), saves},
		{"record of the overlays", saves, string(hv.SavedState), vms},
		{"delta", saves, string(hv.SavedGuest), saves},
	}) {
		run(t, d, spec.ID, "echo "+c.name+" >>/root/log; sync")
		if c.at == "" {
			_ = full(c.full)()
		}
		d.SetStep(func(name string) {
			if name == c.at {
				_ = full(c.full)()
			}
		})
		_, err := d.Save(t.Context(), spec.ID,
			hv.SaveSpec{Dir: c.dir, Suspend: true, Step: at(hv.SaveStep(c.at), full(c.full))})
		free()
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), "no space left") {
			t.Fatalf("%s: %v", c.name, err)
		}
		t.Logf("%s: %v", c.name, err)
		empty(t, c.dir, c.name)
		lives(t, d, vm, c.name)
	}
	d.SetStep(func(string) {})
	saveAndCheck(t, d, spec, "/root/log")
}

// QEMU is killed at each step: the save fails soon, the VM shows why it ended, and its disks can be
// saved as they are.
func TestQEMUKilledInASave(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	for _, step := range fulltest.Some(t, 1, hvtest.SaveSteps()) {
		spec, dir := warmSpec(t), t.TempDir()
		vm := start(t, d, spec)
		run(t, d, spec.ID, "echo kept >/root/x; sync")
		begun := time.Now()
		saved, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: dir, Suspend: true, Step: at(step, func() error {
			defer waitStopped(t, d, spec.ID)
			return syscall.Kill(vm.PID, syscall.SIGKILL)
		})})
		// Once the guest continues, its end does not affect the save any longer.
		if whole := step == hv.SavedGuest || step == hv.SavedDisks; whole != (err == nil) {
			t.Errorf("%s: %+v, %v", step, saved, err)
		} else if !whole {
			empty(t, dir, string(step))
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%s: the save failed after %s", step, took)
		}
		if vm, _ := d.Get(t.Context(), spec.ID); vm.Status != hv.Stopped || vm.Failure == "" {
			t.Errorf("%s: %+v", step, vm)
		}
		if _, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true}); !errors.Is(err,
			hv.ErrNotRunning) {
			t.Errorf("%s: a suspended save of a VM that ended: %v", step, err)
		}
		if off, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir()}); err != nil ||
			off.Disks[0].ChangedBytes == 0 || off.State != "" {
			t.Errorf("%s: a save of its disks: %+v, %v", step, off, err)
		}
		remove(t, d, spec.ID)
	}
}

// Eight saves fail on one VM, each after more was written. A failure before the disks are frozen
// leaves nothing in QEMU, and a later one leaves one overlay; the ninth save contains everything.
func TestEightFailedSaves(t *testing.T) {
	fulltest.Only(t) // TestConformance fails a save at a step and saves again
	t.Parallel()
	spec, dir := warmSpec(t), t.TempDir()
	d := open(t, t.TempDir())
	vm := start(t, d, spec)
	files := func() int {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", vm.PID))
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	steps := hvtest.SaveSteps()
	frozen, before, each := 0, files(), 0
	for i := range 8 {
		step := steps[i%len(steps)]
		// Some of it is on the disk when the save fails, so that it is in the overlay of that time.
		run(t, d, spec.ID,
			fmt.Sprintf("head -c 100000 /dev/urandom >/root/f%d; rm -f /root/f%d; sync; echo %d >>/root/log", i, i-4,
				i))
		_, err := d.Save(t.Context(), spec.ID,
			hv.SaveSpec{Dir: dir, Suspend: true, Step: at(step, func() error { return errStep })})
		if !errors.Is(err, errStep) {
			t.Fatalf("%s: %v", step, err)
		}
		empty(t, dir, string(step))
		lives(t, d, vm, string(step))
		if step != hv.SavePrepared && step != hv.SavePaused {
			frozen++
		}
		if each == 0 && frozen == 1 {
			each = files() - before
		}
		if got := files(); got != before+frozen*each {
			t.Errorf("after %d saves, %d of them frozen: QEMU has %d open files, want %d+%d*%d", i+1, frozen,
				got, before, frozen, each)
		}
	}
	if each < 1 || each > 4 {
		t.Errorf("an overlay costs %d open files", each)
	}
	if overlays, _ := filepath.Glob(filepath.Join(qemu.DirOf(d, spec.ID), "overlay*")); len(overlays) != 1+frozen {
		t.Errorf("overlays %v, want %d", overlays, 1+frozen)
	}
	saveAndCheck(t, d, spec, "/root/log; sha256sum /root/f*")
}

// A save is canceled at each step, and at moments in between: it returns soon with the context's
// error, and the guest continues.
func TestCanceledSaves(t *testing.T) {
	fulltest.Only(t) // TestConformance cancels a save, TestTerminatedInASave ends one at a step
	t.Parallel()
	spec, dir := warmSpec(t), t.TempDir()
	d := open(t, t.TempDir())
	vm := start(t, d, spec)
	run(t, d, spec.ID, "head -c 20000000 /dev/urandom >/dev/shm/random; cp /dev/shm/random /root/random")
	give := func(name string, hook func(context.CancelFunc) func(hv.SaveStep) error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		since := make(chan time.Time, 1)
		context.AfterFunc(ctx, func() { since <- time.Now() })
		_, err := d.Save(ctx, spec.ID, hv.SaveSpec{Dir: dir, Suspend: true, Step: hook(cancel)})
		if err == nil { // it was complete before
			for _, f := range []string{"vm.state", "delta0.qcow2"} {
				_ = os.Remove(filepath.Join(dir, f))
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v", name, err)
		}
		if took := time.Since(<-since); took > 10*time.Second {
			t.Errorf("%s: took %s to give up", name, took)
		}
		empty(t, dir, name)
		lives(t, d, vm, name)
	}
	for _, step := range hvtest.SaveSteps()[:5] {
		give(string(step), func(cancel context.CancelFunc) func(hv.SaveStep) error {
			return at(step, func() error { cancel(); return nil })
		})
	}
	for range 6 {
		after := time.Duration(rand.IntN(300)) * time.Millisecond
		give("after "+after.String(), func(cancel context.CancelFunc) func(hv.SaveStep) error {
			time.AfterFunc(after, cancel)
			return nil
		})
	}
	saveAndCheck(t, d, spec, "/root/random | sha256sum")
}

// The connection to QEMU breaks at each step: the guest continues all the same, and can be saved.
func TestMonitorLostInASave(t *testing.T) {
	fulltest.Only(t) // TestQEMUKilledInASave loses the monitor with QEMU
	t.Parallel()
	spec, dir := warmSpec(t), t.TempDir()
	d := open(t, t.TempDir())
	vm := start(t, d, spec)
	for _, step := range hvtest.SaveSteps()[:4] {
		_, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: dir, Suspend: true, Step: at(step, func() error {
			qemu.CutMonitor(d, spec.ID)
			return nil
		})})
		t.Logf("%s: %v", step, err)
		if step == hv.SavedState { // nothing is lost any longer
			if err != nil {
				t.Errorf("%s: %v", step, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: the save succeeded", step)
		}
		empty(t, dir, string(step))
		lives(t, d, vm, string(step))
	}
	lives(t, d, vm, "the last step")
	saveAndCheck(t, d, spec, "/root/warm")
}
