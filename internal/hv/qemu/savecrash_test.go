//go:build linux

package qemu_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// An agent killed at any step of a save, and of undoing one: the next agent resumes the guest, its
// memory is intact, and it can be saved.
func TestKilledInASave(t *testing.T) {
	t.Parallel()
	steps := []struct{ step, fail string }{
		{"save: overlays", ""},
		{"save: noted", ""},
		{string(hv.SavePrepared), ""},
		{string(hv.SavePaused), ""},
		{string(hv.SaveFrozen), ""},
		{string(hv.SavedState), ""},
		{"settle: ended", string(hv.SaveFrozen)},
		{"settle: continues", ""},
		{"settle: dropped", string(hv.SavePaused)},
		{string(hv.SavedGuest), ""},
		{string(hv.SavedDisks), ""},
	}
	for _, s := range fulltest.Some(t, 1, steps) {
		t.Run(s.step+" "+s.fail, func(t *testing.T) {
			spec, dir := warmSpec(t), t.TempDir()
			cmd, out := agent(t, dir, spec, s.step, childSave+"=suspended", childFail+"="+s.fail)
			for out.Scan() {
				t.Log(out.Text())
			}
			hasOOMKill(t, cmd)
			d := open(t, dir)
			defer remove(t, d, spec.ID)
			vm, err := d.Get(t.Context(), spec.ID)
			if err != nil {
				t.Fatal(err)
			}
			lives(t, d, vm, "after the agent was killed")
			run(t, d, spec.ID, "echo more >/root/more; sync")
			if saved, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true}); err != nil ||
				saved.Disks[0].ChangedBytes == 0 {
				t.Errorf("the next save: %+v, %v", saved, err)
			}
			lives(t, d, vm, "after the next save")
		})
	}
}

// An agent killed in an undone save, and then its QEMU: the VM starts again, whatever the state of
// that save's overlays.
func TestKilledInASaveAndDead(t *testing.T) {
	fulltest.Only(t) // TestKilledInASave kills the agent, TestBothKilled its QEMU too
	t.Parallel()
	steps := []struct{ step, fail string }{
		{"save: noted", ""}, {"settle: dropped", string(hv.SavePaused)}, {string(hv.SavedState), ""},
	}
	for _, s := range fulltest.Some(t, 1, steps) {
		t.Run(s.step, func(t *testing.T) {
			spec, dir := warmSpec(t), t.TempDir()
			cmd, out := agent(t, dir, spec, s.step, childSave+"=suspended", childFail+"="+s.fail)
			pid := 0
			for out.Scan() {
				_, _ = fmt.Sscanf(out.Text(), "pid %d", &pid)
			}
			hasOOMKill(t, cmd)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for len(qemusOf(t, spec.UUID)) > 0 {
				time.Sleep(10 * time.Millisecond)
			}
			d := open(t, dir)
			start(t, d, spec)
			if got := run(t, d, spec.ID, "cat /root/warm"); got != "warm\n" {
				t.Errorf("its disk has %q", got)
			}
		})
	}
}

// An agent is killed after the guest was shut down for a save, and the next one repeats the save:
// the disk has what the guest wrote, and QEMU accepts it.
func TestKilledInAStoppedSave(t *testing.T) {
	t.Parallel()
	spec, dir := warmSpec(t), t.TempDir()
	cmd, out := agent(t, dir, spec, string(hv.SavedGuest), childSave+"=stopped")
	for out.Scan() {
		t.Log(out.Text())
	}
	hasOOMKill(t, cmd)
	d := open(t, dir)
	defer remove(t, d, spec.ID)
	if vm, err := d.Get(t.Context(), spec.ID); err != nil || vm.Status != hv.Stopped || vm.Failure != "" {
		t.Errorf("after the agent was killed: %+v, %v", vm, err)
	}
	s, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir()})
	if err != nil || s.Disks[0].ChangedBytes == 0 || s.State != "" || s.Requirements != (hv.StateRequirements{}) {
		t.Fatalf("the save again: %+v, %v", s, err)
	}
	if _, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true}); !errors.Is(err,
		hv.ErrNotRunning) {
		t.Errorf("a save of a stopped VM with its memory: %v, want ErrNotRunning", err)
	}
	clone := cloneSpec(spec, s)
	if got := readFiles(t, clone.Disks[0], "/root/warm", "/root/last"); got != "warm\nlast\n" {
		t.Errorf("the saved disk has %q", got)
	}
	defer remove(t, d, clone.ID)
	startsOnly(t, d, clone)
}

// readFiles reads files of the guest's file system on a disk, without a boot.
func readFiles(t *testing.T, disk hv.Disk, paths ...string) string {
	t.Helper()
	chain := ""
	for _, path := range append([]string{disk.Path}, disk.Deltas...) {
		if chain != "" {
			chain = `,"backing":` + chain
		}
		chain = fmt.Sprintf(`{"driver":"qcow2","file":{"driver":"file","filename":%q}%s}`, path, chain)
	}
	raw := filepath.Join(t.TempDir(), "raw")
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "convert", "-O", "raw", "json:"+chain,
		raw).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	debugfs, err := exec.LookPath("debugfs")
	if err != nil {
		debugfs = "/usr/sbin/debugfs"
	}
	text := ""
	for _, path := range paths {
		out, err := exec.CommandContext(t.Context(), debugfs, "-R", "cat "+path, raw+"?offset=1048576").Output()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		text += string(out)
	}
	return text
}

// An agent killed at any step of a resume: the next start begins again with the
// state, and the guest never boots without its memory.
func TestKilledInAResume(t *testing.T) {
	t.Parallel()
	steps := []string{"start: begun", "start: forked", "start: loaded", "start: resumed", "start: refreshed"}
	for _, step := range fulltest.Some(t, 1, steps) {
		t.Run(step, func(t *testing.T) {
			spec, dir := warmSpec(t), t.TempDir()
			cmd, out := agent(t, dir, spec, step)
			for out.Scan() {
				t.Log(out.Text())
			}
			hasOOMKill(t, cmd)
			overlay := filepath.Join(dir, spec.ID, "overlay0.qcow2")
			before := filepath.Join(t.TempDir(), "before") // a second name prevents the reuse of its inode number
			if err := os.Link(overlay, before); err != nil {
				t.Fatal(err)
			}
			d := open(t, dir)
			vm := start(t, d, spec)
			lives(t, d, vm, step)
			old, err := os.Stat(before)
			fresh, ferr := os.Stat(overlay)
			if err != nil || ferr != nil || os.SameFile(old, fresh) {
				t.Errorf("the guest goes on above what another has written: %v, %v", err, ferr)
			}
		})
	}
}

// QEMU and its agent both end in a save: the overlays that may contain data stay.
func TestBothKilledInASave(t *testing.T) {
	fulltest.Only(t) // TestKilledInASave and TestQEMUKilledInASave end one of them
	t.Parallel()
	spec, dir := warmSpec(t), t.TempDir()
	d := open(t, dir)
	defer func() { remove(t, d, spec.ID) }()
	vm, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := d.Exec(t.Context(), spec.ID,
		hv.ScriptCommand([]byte("echo kept >/root/x; sync"), time.Minute)); err != nil ||
		r.Code != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	_, err = d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true, Step: func(s hv.SaveStep) error {
		if s == hv.SaveFrozen {
			return syscall.Kill(vm.PID, syscall.SIGKILL)
		}
		return nil
	}})
	if err == nil {
		t.Fatal("the save of a killed VM succeeded")
	}
	waitStopped(t, d, spec.ID)
	_ = d.Close()
	d = open(t, dir)
	if _, err := d.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	r, err := d.Exec(t.Context(), spec.ID, hv.ScriptCommand([]byte("cat /root/x"), time.Minute))
	if err != nil || string(r.Stdout) != "kept\n" {
		t.Errorf("the disk: %+v, %v", r, err)
	}
}
