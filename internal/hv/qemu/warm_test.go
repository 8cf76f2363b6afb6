package qemu_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

// warmDir contains the suspended guest that tests resume from, which takes a tenth of a boot.
var warmDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if warmDir != "" {
		_ = os.RemoveAll(warmDir)
	}
	os.Exit(code)
}

// suspended is the save of that guest, made at the first request.
var suspended struct {
	once  sync.Once
	saved hv.SaveResult
	err   error
}

// suspend boots the demo guest, leaves "warm" in its memory and on its disk, and
// saves it.
func suspend(image string) (saved hv.SaveResult, err error) {
	if warmDir, err = os.MkdirTemp("", "warm-guest-"); err != nil {
		return saved, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	d, err := qemu.Open(ctx, qemu.Options{Dir: filepath.Join(warmDir, "vms")})
	if err != nil {
		return saved, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	spec := newSpec(image, "qcow2")
	if _, err = d.Start(ctx, spec); err != nil {
		return saved, err
	}
	defer func() { err = errors.Join(err, d.Delete(ctx, spec.ID)) }()
	r, err := d.Exec(ctx, spec.ID,
		hv.ScriptCommand([]byte("echo warm >/dev/shm/warm; echo warm >/root/warm; sync"), time.Minute))
	if err != nil || r.Code != 0 {
		return saved, fmt.Errorf("%+v, %w", r, err)
	}
	return d.Save(ctx, spec.ID, hv.SaveSpec{Dir: warmDir, Suspend: true})
}

// warmSpec returns a spec that resumes from the suspended demo guest.
func warmSpec(t testing.TB) hv.Spec {
	t.Helper()
	image := guest(t)
	w := &suspended
	w.once.Do(func() { w.saved, w.err = suspend(image) })
	if w.err != nil {
		t.Fatal(w.err)
	}
	return cloneSpec(newSpec(image, "qcow2"), w.saved)
}

// cloneSpec returns a spec that resumes from a save of a VM.
func cloneSpec(from hv.Spec, saved hv.SaveResult) hv.Spec {
	c := newSpec("", "")
	c.Disks = make([]hv.Disk, len(from.Disks))
	for i, d := range from.Disks {
		d.Deltas = append(append([]string{}, d.Deltas...), saved.Disks[i].Path)
		c.Disks[i] = d
	}
	if saved.State != "" {
		c.State = &hv.State{Path: saved.State, Requirements: saved.Requirements}
	}
	return c
}

// start starts a VM and removes it with the test.
func start(t testing.TB, d *qemu.Driver, spec hv.Spec) hv.VM {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := d.Delete(ctx, spec.ID); err != nil {
			t.Errorf("Delete %s: %v", spec.ID, err)
		}
	})
	vm, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("Start %s: %v", spec.ID, err)
	}
	return vm
}

// run runs a script in a guest and returns its output.
func run(t testing.TB, d *qemu.Driver, id, script string) string {
	t.Helper()
	r, err := d.Exec(t.Context(), id, hv.ScriptCommand([]byte(script), time.Minute))
	if err != nil || r.Code != 0 {
		t.Fatalf("script %q in %s: %+v, %v", script, id, r, err)
	}
	return string(r.Stdout)
}

// lives checks that a warm guest still runs in the same process.
func lives(t testing.TB, d *qemu.Driver, vm hv.VM, after string) {
	t.Helper()
	if got, err := d.Get(t.Context(), vm.ID); err != nil || got.Status != hv.Running || got.PID != vm.PID {
		t.Fatalf("%s: %+v, %v; want it running as before: %+v", after, got, err, vm)
	}
	if got := run(t, d, vm.ID, "cat /dev/shm/warm"); got != "warm\n" {
		t.Fatalf("%s: the guest's memory holds %q", after, got)
	}
}

// empty checks that a failed save has left nothing.
func empty(t testing.TB, dir, after string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%s: left in the directory of the save: %v, %v", after, left, err)
	}
}

// saveAndCheck saves a warm guest and resumes from that in another driver, where the file must have
// the same content as in the guest now.
func saveAndCheck(t testing.TB, d *qemu.Driver, spec hv.Spec, file string) {
	t.Helper()
	want := run(t, d, spec.ID, "cat "+file)
	saved, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true})
	if err != nil {
		t.Fatalf("Save: %v", err)
	}
	other := open(t, t.TempDir())
	clone := cloneSpec(spec, saved)
	start(t, other, clone)
	if got := run(t, other, clone.ID, "cat /dev/shm/warm; cat /root/warm; echo 3 >/proc/sys/vm/drop_caches; cat "+
		file); got != "warm\nwarm\n"+want {
		t.Errorf("the clone has %q, want %q", got, want)
	}
}
