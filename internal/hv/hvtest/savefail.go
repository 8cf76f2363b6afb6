package hvtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// SaveSteps returns all steps of a save with Suspend, in their order.
func SaveSteps() []hv.SaveStep {
	return []hv.SaveStep{
		hv.SavePrepared, hv.SavePaused, hv.SaveFrozen, hv.SavedState, hv.SavedGuest, hv.SavedDisks,
	}
}

var errHook = errors.New("this step is made to fail")

// failingSaves returns the steps at which it made a save fail.
func (s *suite) failingSaves(t *testing.T, vm hv.VM) (failed []hv.SaveStep) {
	for _, step := range s.some(SaveSteps()) {
		failed = append(failed, step)
		s.run(t, s.Driver, vm.ID, "echo "+string(step)+" >"+markOf(step)+"\nsync")
		dir, seen := t.TempDir(), []hv.SaveStep(nil)
		_, err := saver(s.Driver).Save(t.Context(),
			vm.ID, hv.SaveSpec{Dir: dir, Suspend: true, Step: func(at hv.SaveStep) error {
				seen = append(seen, at)
				if at == step {
					return errHook
				}
				return nil
			}})
		if !errors.Is(err, errHook) || len(seen) == 0 || seen[len(seen)-1] != step {
			t.Errorf("%s: %v after %v", step, err, seen)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%s: left in its directory: %v, %v", step, left, err)
		}
		s.lives(t, vm, string(step))
	}
	if _, err := saver(s.Driver).Save(t.Context(), vm.ID, hv.SaveSpec{Dir: "relative"}); !errors.Is(err,
		hv.ErrRefused) {
		t.Errorf("a relative directory: %v, want ErrRefused", err)
	}
	if _, err := saver(s.Driver).Save(t.Context(), "nobody", hv.SaveSpec{Dir: t.TempDir()}); !errors.Is(err,
		hv.ErrNotFound) {
		t.Errorf("an unknown VM: %v, want ErrNotFound", err)
	}
	return failed
}

func markOf(step hv.SaveStep) string { return "/root/before-" + string(step) }

// givenUpSaves ends the context of a save at each step but the last.
func (s *suite) givenUpSaves(t *testing.T, vm hv.VM) {
	for _, step := range s.some(SaveSteps()[:5]) {
		ctx, cancel := context.WithCancel(t.Context())
		dir := t.TempDir()
		_, err := saver(s.Driver).Save(ctx,
			vm.ID, hv.SaveSpec{Dir: dir, Suspend: true, Step: func(at hv.SaveStep) error {
				if at == step {
					cancel()
				}
				return nil
			}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", step, err)
		}
		cancel()
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%s: left in its directory: %v, %v", step, left, err)
		}
		s.lives(t, vm, "given up at "+string(step))
	}
}

// endedInSave kills the hypervisor while it saves; the disks can be saved then.
func (s *suite) endedInSave(t *testing.T, clone hv.Spec) {
	vm, dir := s.start(t, clone), t.TempDir()
	_, err := saver(s.Driver).Save(t.Context(),
		vm.ID, hv.SaveSpec{Dir: dir, Suspend: true, Step: func(at hv.SaveStep) error {
			if at == hv.SaveFrozen {
				s.Kill(t, vm)
			}
			return nil
		}})
	if err == nil {
		t.Error("the save of a VM that was killed succeeded")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in its directory: %v, %v", left, err)
	}
	eventually(t, "the VM shows stopped", time.Minute, func() bool { return s.get(t, vm.ID).Status == hv.Stopped })
	if got := s.get(t, vm.ID); got.Failure == "" {
		t.Errorf("a VM that was killed in a save shows as %+v", got)
	}
	if _, err := saver(s.Driver).Save(t.Context(), vm.ID, hv.SaveSpec{Dir: dir}); err != nil {
		t.Errorf("a save of its disks: %v", err)
	}
}

// damagedState starts from half a state: a failed start, and no boot. With the
// whole state the same VM starts.
func (s *suite) damagedState(t *testing.T, from hv.Spec, saved hv.SaveResult) {
	whole, err := os.ReadFile(saved.State)
	if err != nil {
		t.Fatal(err)
	}
	saved.State = filepath.Join(t.TempDir(), "half")
	clone := s.clone(from, saved)
	s.deleteLater(t, clone.ID)
	for _, half := range [][]byte{whole[:len(whole)/2], nil} {
		if err := os.WriteFile(saved.State, half, 0o600); err != nil {
			t.Fatal(err)
		}
		if vm, err := s.Driver.Start(t.Context(), clone); err == nil {
			t.Errorf("%d of %d bytes of the state: started as %+v", len(half), len(whole), vm)
		}
		if vm, err := s.Driver.Get(t.Context(), clone.ID); err == nil && vm.Status != hv.Stopped {
			t.Errorf("after that: %+v", vm)
		}
	}
	if err := os.WriteFile(saved.State, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Driver.Start(t.Context(), clone); err != nil {
		t.Fatalf("the whole state: %v", err)
	}
	if got := s.run(t, s.Driver, clone.ID, "cat /dev/shm/note"); got != "remembered\n" {
		t.Errorf("its memory holds %q", got)
	}
}

// givenUpRestarts ends the context of a restart after some time, and removes the
// VM: what a termination does.
func (s *suite) givenUpRestarts(t *testing.T, from hv.Spec, saved hv.SaveResult) {
	s.need(t, hv.CanRestart)
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond} {
		vm := s.start(t, s.clone(from, saved))
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := s.Driver.(hv.Restarter).Restart(ctx, vm.ID, nil)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %s: %v", after, err)
		}
		cancel()
		if err := s.Driver.Delete(t.Context(), vm.ID); err != nil {
			t.Errorf("after %s: Delete: %v", after, err)
		}
		if _, err := s.Driver.Get(t.Context(), vm.ID); !errors.Is(err, hv.ErrNotFound) {
			t.Errorf("after %s: Get: %v, want ErrNotFound", after, err)
		}
	}
}

// lives checks that the VM is in the same run, and that its guest answers.
func (s *suite) lives(t *testing.T, vm hv.VM, after string) {
	t.Helper()
	if got := s.get(t, vm.ID); got.Status != hv.Running || got.PID != vm.PID || !got.StartedAt.Equal(vm.StartedAt) {
		t.Fatalf("%s: %+v, want it running as before: %+v", after, got, vm)
	}
	if got := s.run(t, s.Driver, vm.ID, "cat /dev/shm/note"); got != "remembered\n" {
		t.Fatalf("%s: the guest answers %q", after, got)
	}
}

// interruptedSaves replaces the agent between the steps of a save.
func (s *suite) interruptedSaves(t *testing.T, vm hv.VM) {
	for _, step := range s.some([]hv.SaveStep{hv.SavePrepared, hv.SavePaused, hv.SaveFrozen, hv.SavedState}) {
		_, err := saver(s.Driver).Save(t.Context(),
			vm.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true, Step: func(at hv.SaveStep) error {
				if at != step {
					return nil
				}
				s.Driver = s.Reopen(t)
				return errHook // the old agent has ended here
			}})
		if !errors.Is(err, errHook) {
			t.Errorf("%s: %v", step, err)
		}
		s.lives(t, vm, "new agent after "+string(step))
	}
}

// misfits changes each part of what a state needs.
func (s *suite) misfits(t *testing.T, d hv.Driver, clone hv.Spec) {
	for name, change := range map[string]func(*hv.Spec){
		"version":     func(v *hv.Spec) { v.State.Requirements.Version = "0.1" },
		"machine":     func(v *hv.Spec) { v.State.Requirements.Machine = "x" },
		"accelerator": func(v *hv.Spec) { v.State.Requirements.Accelerator = "x" },
		"CPU":         func(v *hv.Spec) { v.State.Requirements.CPU = "x" },
		"host CPU":    func(v *hv.Spec) { v.State.Requirements.HostCPU = "x" },
		"layout":      func(v *hv.Spec) { v.State.Requirements.Layout = "x" },
		"network":     func(v *hv.Spec) { v.State.Requirements.Network = "x" },
		"driver":      func(v *hv.Spec) { v.State.Requirements.Driver = "x" },
		"disks":       func(v *hv.Spec) { v.State.Requirements.Disks = 7 },
		"vcpu":        func(v *hv.Spec) { v.CPUs++ },
		"memory":      func(v *hv.Spec) { v.MemoryMB += 64 },
		"no file":     func(v *hv.Spec) { v.State.Path += ".none" },
		"relative":    func(v *hv.Spec) { v.State.Path = "state" },
	} {
		spec, state := clone, *clone.State
		spec.State = &state
		change(&spec)
		if _, err := d.Start(t.Context(), spec); !errors.Is(err, hv.ErrRefused) {
			t.Errorf("%s: %v, want ErrRefused", name, err)
		}
	}
	if vms, err := d.List(t.Context()); err != nil || len(vms) != 0 {
		t.Errorf("refused starts left %d VMs (%v)", len(vms), err)
	}
}
