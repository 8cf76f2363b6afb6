//go:build linux

package qemu_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

// takeChosenPort listens on the host port that was chosen for a VM's first rule.
func takeChosenPort(t *testing.T, dir, id string) (port int) {
	t.Helper()
	var config struct{ Ports []hv.PortRule }
	b, err := os.ReadFile(filepath.Join(dir, id, "config.json"))
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err != nil {
		t.Error(err)
		return 0
	}
	port = config.Ports[0].HostPort
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4",
		net.JoinHostPort("0.0.0.0", strconv.Itoa(port)))
	if err != nil {
		t.Errorf("the test cannot take port %d: %v", port, err)
		return port
	}
	t.Cleanup(func() { _ = l.Close() })
	return port
}

func sshRule() []hv.PortRule { return []hv.PortRule{{Name: "ssh", GuestPort: 22}} }

// checkChosenAgain checks that a start succeeded with another port.
func checkChosenAgain(t *testing.T, vm hv.VM, err error, taken int) {
	t.Helper()
	if err != nil || taken == 0 || vm.Ports[0].HostPort == taken || vm.Ports[0].HostPort < 10000 {
		t.Errorf("port %d was taken: %+v, %v", taken, vm.Ports, err)
	}
}

// A host port is taken between its choice and its use: another one is chosen,
// when the guest boots and when it resumes from a state.
func TestPortTakenConcurrently(t *testing.T) {
	t.Parallel()
	for at, spec := range map[string]hv.Spec{
		"start: begun": newSpec(guest(t), "qcow2"), "start: resumed": warmSpec(t),
	} {
		t.Run(at, func(t *testing.T) {
			dir, taken := t.TempDir(), 0
			d := open(t, dir)
			d.SetStep(func(name string) {
				if name == at && taken == 0 {
					taken = takeChosenPort(t, dir, spec.ID)
				}
			})
			spec.Ports = sshRule()
			defer remove(t, d, spec.ID)
			if spec.State == nil {
				vm := startsOnly(t, d, spec)
				checkChosenAgain(t, vm, nil, taken)
				return
			}
			vm, err := d.Start(t.Context(), spec)
			checkChosenAgain(t, vm, err, taken)
		})
	}
}

// The same with a QEMU whose agent was killed immediately after the start: the next agent finds it,
// and it ends because its port is taken.
func TestPortTakenFromAdopted(t *testing.T) {
	t.Parallel()
	dir, tools := t.TempDir(), t.TempDir()
	spec := newSpec(guest(t), "qcow2")
	spec.Ports = sshRule()
	slow, start := filepath.Join(tools, "slow-qemu"), filepath.Join(tools, "start")
	script := "#!/bin/sh\ncase \"$*\" in *-uuid*) while [ ! -e " + start +
		" ]; do sleep 0.1; done ;; esac\nexec qemu-system-x86_64 \"$@\"\n"
	if err := os.WriteFile(slow, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(tools), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := qemu.Open(t.Context(), qemu.Options{Dir: dir, Binary: slow})
	if err != nil {
		t.Fatal(err)
	}
	forked := make(chan struct{})
	d.SetStep(func(name string) {
		if name == "start: forked" {
			close(forked)
			runtime.Goexit() // as a kill would
		}
	})
	go func() { _, _ = d.Start(context.WithoutCancel(t.Context()), spec) }()
	select {
	case <-forked:
	case <-time.After(time.Minute):
		t.Fatal("QEMU was not started")
	}
	_ = d.Close()
	next := open(t, dir)
	defer remove(t, next, spec.ID)
	if vm, err := next.Get(t.Context(), spec.ID); err != nil || vm.Status != hv.Running {
		t.Fatalf("the next agent finds %+v, %v", vm, err)
	}
	taken := takeChosenPort(t, dir, spec.ID)
	if err := os.WriteFile(start, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	checkChosenAgain(t, startsOnly(t, next, spec), nil, taken)
}

// A port that was requested is not replaced, and the error has advice.
func TestPortAskedForIsTaken(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, spec := range map[string]hv.Spec{"boots": newSpec(guest(t), "qcow2"), "goes on": warmSpec(t)} {
		t.Run(name, func(t *testing.T) {
			d := open(t, t.TempDir())
			spec.Ports = sshRule()
			spec.Ports[0].HostIP, spec.Ports[0].HostPort = "127.0.0.1", l.Addr().(*net.TCPAddr).Port
			defer remove(t, d, spec.ID)
			if vm, err := d.Start(t.Context(), spec); err == nil ||
				!strings.Contains(err.Error(), "leave the host port out, or ask for another") {
				t.Errorf("%+v, %v", vm.Ports, err)
			}
			if vm, err := d.Get(t.Context(), spec.ID); err != nil || vm.Status != hv.Stopped || vm.Failure == "" {
				t.Errorf("it is left as %+v, %v", vm, err)
			}
		})
	}
}
