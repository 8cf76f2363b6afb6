//go:build linux

package qemu_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// nothingLeft checks that a removed VM is gone from the driver, the process table
// and the disk.
func nothingLeft(t *testing.T, d *qemu.Driver, dir string, spec hv.Spec) {
	t.Helper()
	if _, err := d.Get(t.Context(), spec.ID); !errors.Is(err, hv.ErrNotFound) {
		t.Errorf("Get: %v, want ErrNotFound", err)
	}
	if left := qemusOf(t, spec.UUID); len(left) != 0 {
		t.Errorf("QEMU processes %v are left", left)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("left in the directory: %v, %v", files, err)
	}
}

// A VM is terminated in each step of a save: its context ends, or it is simply
// removed. The save fails soon, and nothing is left of either.
func TestTerminatedInASave(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, dir)
	for _, step := range fulltest.Some(t, 1, hvtest.SaveSteps()) {
		for _, polite := range []bool{true, false} {
			spec, saves := warmSpec(t), t.TempDir()
			start(t, d, spec)
			ctx, cancel := context.WithCancel(t.Context())
			removed := make(chan error, 1)
			_, err := d.Save(ctx, spec.ID, hv.SaveSpec{Dir: saves, Suspend: true, Step: at(step, func() error {
				if polite {
					cancel()
					return nil
				}
				go func() { removed <- d.Delete(t.Context(), spec.ID) }()
				waitStopped(t, d, spec.ID)
				return nil
			})})
			cancel()
			if polite {
				removed <- d.Delete(t.Context(), spec.ID)
			}
			if err := <-removed; err != nil {
				t.Errorf("%s: Delete: %v", step, err)
			}
			if err == nil && step != hv.SavedDisks { // that was the last step
				t.Errorf("%s: the save succeeded", step)
			}
			if err != nil {
				empty(t, saves, string(step))
			}
			nothingLeft(t, d, dir, spec)
		}
	}
}

// A VM is terminated in each step of a restart.
func TestTerminatedInARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, dir)
	for _, step := range fulltest.Some(t, 1,
		[]string{"start: overlay", "start: begun", "start: forked", "start: pid", ""}) {
		spec := warmSpec(t)
		start(t, d, spec)
		ctx, cancel := context.WithCancel(t.Context())
		d.SetStep(func(name string) {
			switch name {
			case step:
				cancel()
			case "start: pid": // the last case: while it boots
				time.AfterFunc(300*time.Millisecond, cancel)
			}
		})
		if _, err := d.Restart(ctx, spec.ID, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%q: %v, want context.Canceled", step, err)
		}
		cancel()
		d.SetStep(func(string) {})
		remove(t, d, spec.ID)
		nothingLeft(t, d, dir, spec)
	}
}

// Two simultaneous saves run one after the other, while commands and starts run; a save that waits
// for another can be canceled.
func TestSaveAmongOthers(t *testing.T) {
	t.Parallel()
	spec := warmSpec(t)
	d := open(t, t.TempDir())
	vm := start(t, d, spec)
	var wg sync.WaitGroup
	for range 2 {
		dir := t.TempDir()
		wg.Go(func() {
			if s, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: dir, Suspend: true}); err != nil ||
				s.State == "" {
				t.Errorf("one of two saves: %+v, %v", s, err)
			}
		})
		wg.Go(func() {
			if r, err := d.Exec(t.Context(), spec.ID, hv.ScriptCommand([]byte("sleep 1; cat /dev/shm/warm"),
				time.Minute)); err != nil || string(r.Stdout) != "warm\n" {
				t.Errorf("a command beside them: %+v, %v", r, err)
			}
		})
		wg.Go(func() {
			if again, err := d.Start(t.Context(), spec); err != nil || again.PID != vm.PID {
				t.Errorf("a start beside them: %+v, %v", again, err)
			}
		})
	}
	wg.Wait()
	_, err := d.Save(t.Context(),
		spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true, Step: at(hv.SavedGuest, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := d.Save(ctx, spec.ID, hv.SaveSpec{Dir: t.TempDir()}); !errors.Is(err,
				context.DeadlineExceeded) {
				t.Errorf("a save that waits for another: %v", err)
			}
			return nil
		})})
	if err != nil {
		t.Error(err)
	}
	lives(t, d, vm, "the saves")
	stopped := make(chan error, 1)
	_, err = d.Save(t.Context(),
		spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true, Step: at(hv.SaveFrozen, func() error {
			go func() { stopped <- d.Stop(t.Context(), spec.ID, hv.StopForce) }()
			waitStopped(t, d, spec.ID)
			return nil
		})})
	if err == nil {
		t.Error("the save of a VM that was stopped in it succeeded")
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop: %v", err)
	}
	if vm, _ := d.Get(t.Context(), spec.ID); vm.Failure != "" {
		t.Errorf("after the stop: %+v", vm)
	}
}

// whenAsked calls do as soon as a guest is asked to shut down.
func whenAsked(t *testing.T, d *qemu.Driver, id string, do func()) {
	for t.Context().Err() == nil {
		if _, err := os.Stat(filepath.Join(qemu.DirOf(d, id), "end.json")); err == nil {
			do()
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// A guest that ends otherwise than by its shutdown fails the save.
func TestStoppedSaveOfDyingGuest(t *testing.T) {
	t.Parallel()
	spec, dir := warmSpec(t), t.TempDir()
	d := open(t, t.TempDir())
	vm := start(t, d, spec)
	go whenAsked(t, d, spec.ID, func() { _ = syscall.Kill(vm.PID, syscall.SIGKILL) })
	if _, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), "shutdown of the guest did not finish") {
		t.Errorf("the save of a guest that was killed in its shutdown: %v", err)
	}
	empty(t, dir, "killed")
}

// The node's disk is full when a guest is asked to shut down for a save, or becomes full during
// that: what it has not written yet would be missing.
func TestStoppedSaveWithoutSpace(t *testing.T) {
	t.Parallel()
	spec, vms, dir := warmSpec(t), smallDisk(t, "64m"), t.TempDir()
	d := open(t, vms)
	vm := start(t, d, spec)
	free := fill(t, vms)
	_, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: dir})
	free()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("its intention cannot be noted: %v", err)
	}
	lives(t, d, vm, "no shutdown")
	// The guest is to keep all of it in its memory until it shuts down.
	run(t, d, spec.ID, `cd /proc/sys/vm; echo 100000 | tee dirty_writeback_centisecs >dirty_expire_centisecs
echo 90 >dirty_ratio; echo 80 >dirty_background_ratio`)
	run(t, d, spec.ID, "head -c 20000000 /dev/urandom >/root/lost")
	fill(t, vms)
	shrink(t, filepath.Join(vms, "filler"), 1<<20) // fits the intent, but not the guest's last writes
	if _, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), "shutdown of the guest did not finish: The node's disk is full") {
		t.Errorf("a save without room for the guest's last writes: %v", err)
	}
	empty(t, dir, "no room")
}

// shrink takes bytes from the end of a file.
func shrink(t *testing.T, path string, by int64) {
	t.Helper()
	fi, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, fi.Size()-by)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A guest that is slow to shut down fails the save and is not forced; once it is
// off, its disks can be saved.
func TestStoppedSaveOfSlowGuest(t *testing.T) {
	t.Parallel()
	spec := warmSpec(t)
	d := openWith(t, qemu.Options{Dir: t.TempDir(), StopTimeout: 200 * time.Millisecond})
	vm := start(t, d, spec)
	if _, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir()}); err == nil ||
		!strings.Contains(err.Error(), "in time") {
		t.Errorf("the save of a slow guest: %v", err)
	}
	if got, _ := d.Get(t.Context(), spec.ID); got.Status != hv.Running || got.PID != vm.PID {
		t.Errorf("the slow guest was ended: %+v", got)
	}
	waitStopped(t, d, spec.ID)
	if got, _ := d.Get(t.Context(), spec.ID); got.StoppedAt.IsZero() ||
		!strings.Contains(got.Failure, "powered itself off") {
		t.Errorf("when it is off: %+v", got)
	}
	if s, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir()}); err != nil ||
		s.Disks[0].ChangedBytes == 0 {
		t.Errorf("the save of its disks: %+v, %v", s, err)
	}
}
