//go:build linux

package qemu_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

// Environment of the child processes below.
const (
	childDir  = "BUILDYARD_QEMU_CHILD_DIR"
	childSpec = "BUILDYARD_QEMU_CHILD_SPEC"
	childStep = "BUILDYARD_QEMU_CHILD_STEP" // kill -9 itself at this step
	childSave = "BUILDYARD_QEMU_CHILD_SAVE" // "suspended" or "stopped": save before that step
	childFail = "BUILDYARD_QEMU_CHILD_FAIL" // step at which that save is made to fail
)

// TestChild is the agent that the tests below kill; alone it does nothing.
func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("only as a child process")
	}
	d := open(t, dir)
	d.SetStep(func(name string) {
		if name == os.Getenv(childStep) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	var spec hv.Spec
	if err := json.Unmarshal([]byte(os.Getenv(childSpec)), &spec); err != nil {
		t.Fatal(err)
	}
	vm, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("pid", vm.PID)
	if os.Getenv(childSave) != "" {
		saveInChild(t, d, spec.ID)
	}
	if os.Getenv(childStep) != "" {
		t.Fatal(d.Delete(t.Context(), spec.ID))
	}
	select {} // until killed
}

// saveInChild kills its process before the save returns.
func saveInChild(t *testing.T, d *qemu.Driver, id string) {
	dir, err := os.MkdirTemp(filepath.Dir(os.Getenv(childDir)), "save") // the child removes nothing
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Save(t.Context(), id, hv.SaveSpec{Dir: dir, Suspend: os.Getenv(childSave) == "suspended", Step: func(s hv.SaveStep) error {
		switch string(s) {
		case os.Getenv(childStep):
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case os.Getenv(childFail):
			return errStep
		}
		return nil
	}})
	t.Fatalf("the save came to its end: %v", err)
}

// agent starts such a child and answers it with its output.
func agent(t *testing.T, dir string, spec hv.Spec, step string, more ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childSpec+"="+string(b), childStep+"="+step)
	cmd.Env = append(cmd.Env, more...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// A killed agent: its VM goes on, and the next agent works with it.
func TestAgentKilled(t *testing.T) {
	spec := newSpec(guest(t), "qcow2")
	dir := t.TempDir()
	cmd, out := agent(t, dir, spec, "")
	pid := 0
	for pid == 0 && out.Scan() {
		_, _ = fmt.Sscanf(out.Text(), "pid %d", &pid)
	}
	if err := cmd.Process.Kill(); err != nil || pid == 0 {
		t.Fatalf("pid %d, %v", pid, err)
	}
	_ = cmd.Wait()
	d := open(t, dir)
	defer remove(t, d, spec.ID)
	vm, err := d.Get(t.Context(), spec.ID)
	if err != nil || vm.Status != hv.Running || vm.PID != pid {
		t.Fatalf("after the agent was killed: %+v, %v; want it running as %d", vm, err, pid)
	}
	again, err := d.Start(t.Context(), spec)
	if err != nil || again.PID != pid || again.IP == "" {
		t.Errorf("Start of a VM that runs: %+v, %v", again, err)
	}
	r, err := d.Exec(t.Context(), spec.ID, hv.Script([]byte("echo hello"), time.Minute))
	if err != nil || string(r.Stdout) != "hello\n" {
		t.Errorf("Exec: %+v, %v", r, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil { // not a child of this process
		t.Fatal(err)
	}
	waitStopped(t, d, spec.ID)
	if vm, _ := d.Get(t.Context(), spec.ID); vm.Failure == "" {
		t.Errorf("a killed QEMU shows as %+v", vm)
	}
}

// A VM that ends while no agent is there shows as stopped, with a reason.
func TestBothKilled(t *testing.T) {
	spec := newSpec(guest(t), "qcow2")
	dir := t.TempDir()
	d := open(t, dir)
	vm, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(vm.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second Open finds what the first has noted
		d = open(t, dir)
		got, err := d.Get(t.Context(), spec.ID)
		if err != nil || got.Status != hv.Stopped || got.Failure == "" || got.StoppedAt.IsZero() {
			t.Errorf("got %+v, %v, want a VM that ended by itself", got, err)
		}
		_ = d.Close()
	}
	d = open(t, dir)
	remove(t, d, spec.ID)
}

// An agent killed at any step of a start or a removal leaves a VM that the
// next agent lists or that is not there at all, and never a QEMU nobody knows.
func TestKilledAtEveryStep(t *testing.T) {
	image := guest(t)
	steps := map[string]string{ // step -> what the next agent must find
		"create: config":  "nothing",
		"create: renamed": "stopped",
		"start: overlay":  "stopped",
		"start: begun":    "stopped",
		"start: forked":   "running",
		"start: pid":      "running",
		"delete: move":    "stopped",
		"delete: remove":  "nothing",
	}
	for step, want := range steps {
		t.Run(step, func(t *testing.T) {
			spec := newSpec(image, "qcow2")
			dir := t.TempDir()
			cmd, out := agent(t, dir, spec, step)
			for out.Scan() {
				t.Log(out.Text())
			}
			killed(t, cmd)
			d := open(t, dir)
			vm, err := d.Get(t.Context(), spec.ID)
			switch {
			case want == "nothing":
				if !errors.Is(err, hv.ErrNotFound) {
					t.Errorf("got %+v, %v, want no VM", vm, err)
				}
			case err != nil || string(vm.Status) != want:
				t.Errorf("got %+v, %v, want %s", vm, err, want)
			case want == "stopped" && vm.Failure == "" && strings.HasPrefix(step, "start"):
				t.Errorf("an interrupted start shows no failure: %+v", vm)
			}
			if want != "nothing" && strings.HasPrefix(step, "start") { // and it can still be started
				if _, err := d.Start(t.Context(), spec); err != nil {
					t.Errorf("Start after the agent was killed: %v", err)
				}
			}
			remove(t, d, spec.ID)
			if left := qemusOf(t, spec.UUID); len(left) != 0 {
				t.Errorf("QEMU processes %v are left", left)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
				t.Errorf("left in the directory: %v, %v", files, err)
			}
		})
	}
}

// killed waits for a child that kills itself.
func killed(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the agent was not killed at this step: %v", err)
	}
}

// An agent killed at any step of a save, and of undoing one: the next agent lets
// the guest go on, its memory is there, and it can be saved.
func TestKilledInASave(t *testing.T) {
	steps := []struct{ step, fail string }{
		{"save: overlays", ""},
		{"save: noted", ""},
		{string(hv.SavePrepared), ""},
		{string(hv.SavePaused), ""},
		{string(hv.SaveFrozen), ""},
		{string(hv.SavedState), ""},
		{"settle: ended", string(hv.SaveFrozen)},
		{"settle: goes on", ""},
		{"settle: dropped", string(hv.SavePaused)},
		{string(hv.SavedGuest), ""},
		{string(hv.SavedDisks), ""},
	}
	for _, s := range steps {
		t.Run(s.step+" "+s.fail, func(t *testing.T) {
			spec, dir := warmSpec(t), t.TempDir()
			cmd, out := agent(t, dir, spec, s.step, childSave+"=suspended", childFail+"="+s.fail)
			for out.Scan() {
				t.Log(out.Text())
			}
			killed(t, cmd)
			d := open(t, dir)
			defer remove(t, d, spec.ID)
			vm, err := d.Get(t.Context(), spec.ID)
			if err != nil {
				t.Fatal(err)
			}
			lives(t, d, vm, "after the agent was killed")
			if saved, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true}); err != nil || saved.Disks[0].Bytes == 0 {
				t.Errorf("the next save: %+v, %v", saved, err)
			}
			lives(t, d, vm, "after the next save")
		})
	}
}

// An agent killed in an undone save, and then its QEMU: the VM starts again,
// whatever the overlays of that save came to.
func TestKilledInASaveAndDead(t *testing.T) {
	for step, fail := range map[string]string{
		"save: noted": "", "settle: dropped": string(hv.SavePaused), string(hv.SavedState): "",
	} {
		t.Run(step, func(t *testing.T) {
			spec, dir := warmSpec(t), t.TempDir()
			cmd, out := agent(t, dir, spec, step, childSave+"=suspended", childFail+"="+fail)
			pid := 0
			for out.Scan() {
				_, _ = fmt.Sscanf(out.Text(), "pid %d", &pid)
			}
			killed(t, cmd)
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

// An agent killed when the guest has been shut down for a save, and the next
// one repeats the save.
func TestKilledInAStoppedSave(t *testing.T) {
	spec, dir := warmSpec(t), t.TempDir()
	cmd, out := agent(t, dir, spec, string(hv.SavedGuest), childSave+"=stopped")
	for out.Scan() {
		t.Log(out.Text())
	}
	killed(t, cmd)
	d := open(t, dir)
	defer remove(t, d, spec.ID)
	if vm, err := d.Get(t.Context(), spec.ID); err != nil || vm.Status != hv.Stopped || vm.Failure != "" {
		t.Errorf("after the agent was killed: %+v, %v", vm, err)
	}
	if s, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir()}); err != nil || s.Disks[0].Bytes == 0 {
		t.Errorf("the save again: %+v, %v", s, err)
	}
}

// An agent killed at any step of a resume: the next start begins anew with the
// state, and the guest never boots without its memory.
func TestKilledInAResume(t *testing.T) {
	for _, step := range []string{"start: overlay", "start: begun", "start: forked", "start: loaded", "start: resumed", "start: refreshed"} {
		t.Run(step, func(t *testing.T) {
			spec, dir := warmSpec(t), t.TempDir()
			cmd, out := agent(t, dir, spec, step)
			for out.Scan() {
				t.Log(out.Text())
			}
			killed(t, cmd)
			d := open(t, dir)
			vm := start(t, d, spec)
			lives(t, d, vm, step)
		})
	}
}

// QEMU and its agent both end in a save: the overlays that may hold data stay.
func TestBothKilledInASave(t *testing.T) {
	spec, dir := newSpec(guest(t), "qcow2"), t.TempDir()
	d := open(t, dir)
	defer func() { remove(t, d, spec.ID) }()
	vm, err := d.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := d.Exec(t.Context(), spec.ID, hv.Script([]byte("echo kept >/root/x; sync"), time.Minute)); err != nil || r.Code != 0 {
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
	r, err := d.Exec(t.Context(), spec.ID, hv.Script([]byte("cat /root/x"), time.Minute))
	if err != nil || string(r.Stdout) != "kept\n" {
		t.Errorf("the disk: %+v, %v", r, err)
	}
}

func remove(t *testing.T, d *qemu.Driver, id string) {
	t.Helper()
	if err := d.Delete(t.Context(), id); err != nil {
		t.Errorf("Delete: %v", err)
	}
}

func waitStopped(t *testing.T, d *qemu.Driver, id string) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); ; {
		vm, err := d.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if vm.Status == hv.Stopped {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("VM %s does not stop: %+v", id, vm)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// qemusOf looks for a machine UUID in the process table, by itself.
func qemusOf(t *testing.T, uuid string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		b, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) || err != nil {
			continue
		}
		if args := string(b); strings.HasPrefix(args, "qemu") && strings.Contains(args, uuid) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}
