package sim_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

var serial atomic.Int64

func spec() hv.Spec {
	n := serial.Add(1)
	return hv.Spec{
		ID: fmt.Sprintf("vm-%d", n), Name: "demo", UUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n),
		Disks: []hv.Disk{{Path: "/base", Format: "raw"}}, CPUs: 2, MemoryMB: 512,
	}
}

func open(t *testing.T, opt sim.Options) *sim.Host {
	t.Helper()
	h, err := sim.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestArch(t *testing.T) {
	for arch, want := range map[string]string{"": sim.DefaultArch, "arm64": "arm64"} {
		h, err := open(t, sim.Options{Arch: arch}).Describe(t.Context())
		if err != nil || h.Arch != want {
			t.Errorf("%q: the host is %q, %v, want %q", arch, h.Arch, err, want)
		}
	}
}

func TestConformance(t *testing.T) {
	for _, mode := range []string{"memory", "files", "two at a time"} {
		t.Run(mode, func(t *testing.T) {
			run := hvtest.Run
			if mode == "two at a time" {
				run = hvtest.RunSerially
			}
			run(t, func(t *testing.T) hvtest.Subject {
				opt := sim.Options{Boot: sim.DurationRange{Min: time.Millisecond, Max: 5 * time.Millisecond}}
				if mode == "files" {
					opt.Dir = t.TempDir()
				}
				h := open(t, opt)
				most, mask := 0, []hv.Capability(nil)
				if mode == "two at a time" {
					most, mask = 2, []hv.Capability{hv.CanSuspend, hv.CanNetworkHost, hv.CanVNC}
				}
				return hvtest.Subject{
					Driver: h, Spec: spec, MaxVMs: most, Mask: mask,
					NeverReady: func() hv.Spec {
						s := spec()
						s.BootTimeout = 50 * time.Millisecond
						s.Labels = map[string]string{sim.LabelBoot: "never"}
						return s
					},
					Kill: func(t *testing.T, vm hv.VM) {
						if err := h.Kill(vm.ID); err != nil {
							t.Error(err)
						}
					},
					Reopen: func(t *testing.T) hv.Driver {
						if mode == "files" {
							h = open(t, opt)
						}
						return h
					},
					Other: func(t *testing.T) hv.Driver { return open(t, sim.Options{}) },
				}
			})
		})
	}
}

// Thousands of VMs cost memory only, and the drawn failures match the configured shares.
func TestManyVMs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, sim.Options{
			Boot: sim.DurationRange{Min: time.Second, Max: 3 * time.Second}, Seed: 7,
			BootFailureRate: 0.25, CrashRate: 0.5, CrashAfter: sim.DurationRange{Min: time.Minute, Max: time.Hour},
		})
		const n = 2000
		failed := make(chan bool, n)
		begun := time.Now()
		for range n {
			s := spec()
			go func() {
				_, err := h.Start(t.Context(), s)
				failed <- err != nil
			}()
		}
		bad := 0
		for range n {
			if <-failed {
				bad++
			}
		}
		if took := time.Since(begun); took < time.Second || took > 3*time.Second {
			t.Errorf("boots took %s, want 1-3 s", took)
		}
		if bad < n/5 || bad > n/3 {
			t.Errorf("%d of %d boots failed, want about a quarter", bad, n)
		}
		if got := running(t, h); got != n-bad {
			t.Errorf("%d VMs run, want %d", got, n-bad)
		}
		time.Sleep(2 * time.Hour)
		if got := running(t, h); got < n/4 || got > n/2 {
			t.Errorf("%d of %d VMs outlived two hours, want about 3/8", got, n)
		}
	})
}

func running(t *testing.T, h *sim.Host) (n int) {
	t.Helper()
	vms, err := h.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, vm := range vms {
		switch {
		case vm.Status == hv.Running:
			n++
		case vm.Failure == "":
			t.Errorf("VM %s ended without a reason", vm.ID)
		}
	}
	return n
}

// The same seed leads to the same failures whatever the order of calls.
func TestSeed(t *testing.T) {
	fates := func(seed uint64, reverse bool) (out string) {
		h := open(t, sim.Options{Seed: seed, BootFailureRate: 0.5})
		got := map[string]bool{}
		for i := range 64 {
			if reverse {
				i = 63 - i
			}
			s := spec()
			s.ID = fmt.Sprint("same-", i)
			_, err := h.Start(t.Context(), s)
			got[s.ID] = err == nil
		}
		return fmt.Sprint(got)
	}
	if fates(1, false) != fates(1, true) {
		t.Error("the order of starts changed what happened")
	}
	if fates(1, false) == fates(2, false) {
		t.Error("another seed changed nothing")
	}
}

func TestExecFailureAndCrash(t *testing.T) {
	h := open(t, sim.Options{ExecFailureRate: 1})
	s := spec()
	if _, err := h.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if r, err := h.Exec(t.Context(), s.ID, hv.Command{Path: "true"}); err == nil {
		t.Errorf("a command whose outcome is always lost gave %+v", r)
	}
	h = open(t, sim.Options{})
	if _, err := h.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	_, err := h.Exec(t.Context(), s.ID, hv.ScriptCommand([]byte("echo a\ncrash\necho b"), 0))
	if !errors.Is(err, hv.ErrNotRunning) {
		t.Errorf("a script that crashes its VM: %v, want ErrNotRunning", err)
	}
	if vm, _ := h.Get(t.Context(), s.ID); vm.Status != hv.Stopped || vm.Failure == "" {
		t.Errorf("after the crash: %+v", vm)
	}
}

func TestBootLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, sim.Options{})
		s := spec()
		s.Labels = map[string]string{sim.LabelBoot: "90s"}
		s.BootTimeout = 2 * time.Minute
		begun := time.Now()
		if _, err := h.Start(t.Context(), s); err != nil || time.Since(begun) != 90*time.Second {
			t.Errorf("Start: %v after %s", err, time.Since(begun))
		}
		for label, want := range map[string]error{"soon": hv.ErrRefused, "fail": nil} {
			s := spec()
			s.Labels = map[string]string{sim.LabelBoot: label}
			_, err := h.Start(t.Context(), s)
			if err == nil || (want != nil && !errors.Is(err, want)) {
				t.Errorf("label %s: %v", label, err)
			}
		}
	})
}

// A start that a kill ends returns immediately instead of at its boot timeout.
func TestKillDuringBoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, sim.Options{Boot: sim.DurationRange{Min: time.Minute}})
		s := spec()
		done := make(chan error)
		go func() {
			_, err := h.Start(context.Background(), s)
			done <- err
		}()
		time.Sleep(time.Second)
		begun := time.Now()
		if err := h.Kill(s.ID); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil || time.Since(begun) > 0 {
			t.Errorf("Start: %v after %s", err, time.Since(begun))
		}
	})
}

const childEnv = "BUILDYARD_SIM_CHILD_DIR"

// TestChild is the process that TestKilledProcess kills; alone it does nothing.
func TestChild(t *testing.T) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		t.Skip("only as a child process")
	}
	h := open(t, sim.Options{Dir: dir})
	for {
		s := spec()
		if _, err := h.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		fmt.Println("started", s.ID)
	}
}

func TestKilledProcess(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for lines := bufio.NewScanner(out); len(ids) < 200 && lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "started "); ok {
			ids = append(ids, id)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	h := open(t, sim.Options{Dir: dir})
	for _, id := range ids {
		if vm, err := h.Get(t.Context(), id); err != nil || vm.Status != hv.Running {
			t.Errorf("VM %s of the killed process: %+v, %v", id, vm, err)
		}
	}
	if len(ids) != 200 {
		t.Errorf("the child started %d VMs", len(ids))
	}
}

func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.vm.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.New(sim.Options{Dir: dir}); err == nil {
		t.Error("a damaged file was not reported")
	}
}

// TestDeleteTakesTime: a VM that is removed runs until its delay is over; the removal of an unknown
// VM returns immediately.
func TestDeleteTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, sim.Options{Delete: sim.DurationRange{Min: 2 * time.Second, Max: 5 * time.Second}})
		vm, err := h.Start(t.Context(), spec())
		if err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Delete(limited, vm.ID); err == nil {
			t.Error("a removal outlives its context")
		}
		if now, err := h.Get(t.Context(), vm.ID); err != nil || now.Status != hv.Running {
			t.Errorf("after a removal that was broken off: %+v, %v", now, err)
		}
		began := time.Now()
		if err := h.Delete(t.Context(), vm.ID); err != nil || time.Since(began) < 2*time.Second ||
			time.Since(began) > 5*time.Second {
			t.Errorf("removed after %s, %v", time.Since(began), err)
		}
		began = time.Now()
		if err := h.Delete(t.Context(), vm.ID); err != nil || time.Since(began) != 0 {
			t.Errorf("what is gone takes %s to remove, %v", time.Since(began), err)
		}
	})
}
