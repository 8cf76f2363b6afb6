package qemu_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/guesttest"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// TestConformance is short with make test: the full run boots six more guests, and the simulated
// driver runs the whole suite there.
func TestConformance(t *testing.T) {
	guesttest.Disk(t)
	hvtest.Run(t, func(t *testing.T) hvtest.Subject { return subject(t, guest(t)) }) // each part has its turn
}

// subject returns a separate driver with what the suite needs to know about it.
func subject(t *testing.T, image string) hvtest.Subject {
	blank := filepath.Join(t.TempDir(), "blank.qcow2")
	if err := qemu.CreateDisk(t.Context(), blank, "qcow2", 64<<20); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d := open(t, dir)
	return hvtest.Subject{
		Driver: d,
		Spec:   func() hv.Spec { return newSpec(image, "qcow2") },
		Warm:   func() hv.Spec { return warmSpec(t) },
		NeverReady: func() hv.Spec {
			s := newSpec(blank, "qcow2")
			s.BootTimeout = 3 * time.Second
			return s
		},
		Kill: func(t *testing.T, vm hv.VM) {
			if err := syscall.Kill(vm.PID, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		},
		Reopen: func(*testing.T) hv.Driver {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			d = open(t, dir) // lives as long as the whole test
			return d
		},
		USB: func(t *testing.T, d hv.Driver, id string) []string {
			kinds, err := qemu.PluggedKinds(t.Context(), d.(*qemu.Driver), id)
			if err != nil {
				t.Error(err)
			}
			return kinds
		},
		Other: func(t *testing.T) hv.Driver {
			o := open(t, t.TempDir())
			t.Cleanup(func() { deleteAll(t, o) })
			return o
		},
		Short: !fulltest.All(),
		Steps: func(steps []hv.SaveStep) []hv.SaveStep { return fulltest.Some(t, 1, steps) },
		More: []hvtest.Check{
			{Ability: hv.CanSandbox, Name: "process without rights", Run: func(t *testing.T, vm hv.VM) {
				confined(t, dir, vm)
			}},
			{Ability: hv.CanLimit, Name: "control group", Run: limited},
		},
	}
}

func deleteAll(t *testing.T, d hv.Driver) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vms, err := d.List(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, vm := range vms {
		if err := d.Delete(ctx, vm.ID); err != nil {
			t.Error(err)
		}
	}
}

// acceleratorGroup is the group that may open /dev/kvm; "" where there is none.
func acceleratorGroup() string {
	info, err := os.Stat("/dev/kvm")
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Gid == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(st.Gid), 10)
}

// confined checks that QEMU has no privileges, cannot start programs, and has no file by name.
func confined(t *testing.T, dir string, vm hv.VM) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", vm.PID))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(status)) {
		k, v, _ := strings.Cut(line, ":")
		fields[k] = strings.Join(strings.Fields(v), " ")
	}
	for id := range strings.FieldsSeq(fields["Uid"] + " " + fields["Gid"]) {
		if id == "0" {
			t.Errorf("QEMU runs as root: Uid %s, Gid %s", fields["Uid"], fields["Gid"])
		}
	}
	if groups := fields["Groups"]; os.Geteuid() == 0 && groups != "" && groups != acceleratorGroup() {
		t.Errorf("QEMU has the groups %s", groups)
	}
	want := map[string]string{
		"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0000000000000000",
		"CapPrm": "0000000000000000",
	}
	for k, v := range want {
		if fields[k] != v {
			t.Errorf("%s is %s, want %s", k, fields[k], v)
		}
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", vm.PID))
	if err == nil && strings.Count(string(environ), "\x00") > 2 {
		t.Errorf("QEMU sees this environment: %q", environ)
	}
	if info, err := os.Stat(filepath.Join(dir, vm.ID)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others can look into the VM's directory: %v, %v", info.Mode(), err)
	}
}

// limited checks that QEMU is in its own control group.
func limited(t *testing.T, vm hv.VM) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", vm.PID))
	if err != nil || !strings.Contains(string(b), "/vm-"+vm.ID) {
		t.Errorf("QEMU is in %s, %v", b, err)
	}
}
