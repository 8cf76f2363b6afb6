//go:build linux

package qemu_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
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
	run(t, d, id, "echo last >/root/last") // which a shutdown puts on the disk
	_, err = d.Save(t.Context(),
		id, hv.SaveSpec{Dir: dir, Suspend: os.Getenv(childSave) == "suspended", Step: func(s hv.SaveStep) error {
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

// agent starts such a child and returns it with its output.
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

// A killed agent: its VM continues, and the next agent works with it.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	spec := warmSpec(t)
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
	r, err := d.Exec(t.Context(), spec.ID, hv.ScriptCommand([]byte("echo hello"), time.Minute))
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

// A VM that ends while no agent runs is reported as stopped, with a reason.
func TestBothKilled(t *testing.T) {
	t.Parallel()
	spec := warmSpec(t)
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

// An agent killed at any step of a start or a removal leaves either a VM that the next agent lists
// or none at all, and never a QEMU without a VM.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
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
	for _, step := range fulltest.Some(t, 2, slices.Sorted(maps.Keys(steps))) {
		want := steps[step]
		t.Run(step, func(t *testing.T) {
			spec := newSpec(image, "qcow2")
			// How it comes to run makes no difference to its removal, nor to a start that
			// has not begun or one whose process is noted; a boot takes long.
			if strings.HasPrefix(step, "delete") || step == "start: overlay" || step == "start: pid" {
				spec = warmSpec(t)
			}
			dir := t.TempDir()
			cmd, out := agent(t, dir, spec, step)
			for out.Scan() {
				t.Log(out.Text())
			}
			hasOOMKill(t, cmd)
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
			switch { // and it can still be started
			case step == "start: begun": // QEMU has not run, so that a boot to its end shows nothing more
				startsOnly(t, d, spec)
			case want != "nothing" && strings.HasPrefix(step, "start"):
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

// startsOnly starts a VM and aborts the start as soon as QEMU has its ports, disks and memory: a
// guest's boot takes most of a start. It returns the VM at that time.
func startsOnly(t *testing.T, d *qemu.Driver, spec hv.Spec) (vm hv.VM) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := d.Start(ctx, spec)
		done <- err
	}()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if vm, err = d.Get(t.Context(), spec.ID); err == nil && vm.Status == hv.Running && qemu.Answers(d, spec.ID) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%s was not started: %+v, %v", spec.ID, vm, err)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v, want it given up", err)
	}
	return vm
}

// hasOOMKill waits for a child that kills itself.
func hasOOMKill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the agent was not killed at this step: %v", err)
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
	for end := time.Now().Add(time.Minute); ; {
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

// qemusOf looks for a machine UUID in the process table, without the driver.
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
