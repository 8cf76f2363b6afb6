//go:build linux

package qemu

import (
	"os"
	"os/exec"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

// A process with the UUID of a VM among its arguments, which any user of the host may have started,
// is not taken for the recorded QEMU.
func TestLookKeepsToTheNotedProcess(t *testing.T) {
	const uuid = "6b2f7a51-2f0c-4e0e-9c1d-0d8f5a3e7b19"
	decoy := exec.CommandContext(t.Context(), "sh", "-c", "sleep 60; :", "-uuid", uuid)
	if err := decoy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = decoy.Wait() }()
	defer func() { _ = decoy.Process.Kill() }()
	ticks, err := startTicks(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{dir: t.TempDir(), config: vmConfig{Spec: hv.Spec{UUID: uuid}}}
	m.proc = process{PID: os.Getpid(), StartTicks: ticks, UUID: uuid}
	lock, err := takeLock(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if p, lives, err := m.findQEMU(t.Context()); err != nil || !lives || p != m.proc {
		t.Errorf("got %+v, %v, %v, want process %d", p, lives, err, os.Getpid())
	}
	m.proc.StartTicks++ // that process has ended: another one has the lock
	if p, lives, err := m.findQEMU(t.Context()); err != nil || !lives || p.PID != decoy.Process.Pid {
		t.Errorf("got %+v, %v, %v, want process %d", p, lives, err, decoy.Process.Pid)
	}
}
