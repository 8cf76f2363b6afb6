package qemu_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

func TestConformance(t *testing.T) {
	image := guest(t)
	blank := filepath.Join(t.TempDir(), "blank.qcow2")
	if err := qemu.CreateDisk(t.Context(), blank, "qcow2", 64<<20); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d := open(t, dir)
	hvtest.Run(t, func(*testing.T) hvtest.Subject {
		return hvtest.Subject{
			Driver: d,
			Spec:   func() hv.Spec { return newSpec(image, "qcow2") },
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
			More: []hvtest.Check{
				{Ability: hv.CanSandbox, Name: "process without rights", Run: func(t *testing.T, vm hv.VM) { confined(t, dir, vm) }},
			},
		}
	})
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
