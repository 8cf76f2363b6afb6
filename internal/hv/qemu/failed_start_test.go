//go:build linux

package qemu_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/qemu"
)

// The logs of failed starts are kept beside the VMs, and outlive them: of a
// guest that never gets ready, a QEMU that ends, and a state that does not load.
// The error of the first has the guest's last words.
func TestFailedStartsLeaveLogs(t *testing.T) {
	t.Parallel()
	image, parent := guest(t), t.TempDir()
	d := open(t, filepath.Join(parent, "vms"))
	spoiled := warmSpec(t)
	if _, err := d.Start(t.Context(), spoiled); err != nil {
		t.Fatal(err)
	}
	spoiled.BootTimeout = 2*bootTook + 5*time.Second
	// As a kernel does that panics in its boot: the last words, and nothing more.
	spoil := "mv /sbin/init /sbin/init.old; printf '#!/bin/busybox sh\\nseq 20000 >/dev/ttyS0; echo no-way-to-go-on >/dev/ttyS0; sleep 1000' >/sbin/init; chmod +x /sbin/init; sync"
	if r, err := d.Exec(t.Context(), spoiled.ID, hv.Script([]byte(spoil), time.Minute)); err != nil || r.Code != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := d.Stop(t.Context(), spoiled.ID, hv.StopForce); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := newSpec(image, "qcow2")
	busy.Ports = []hv.PortRule{{Name: "ssh", GuestPort: 22, HostPort: l.Addr().(*net.TCPAddr).Port, HostIP: "127.0.0.1"}}

	broken := newSpec(image, "qcow2")
	state := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(state, []byte("no state"), 0o600); err != nil {
		t.Fatal(err)
	}
	if broken, err = broken.Settled(); err != nil {
		t.Fatal(err)
	}
	broken.State = &hv.State{Path: state, Pin: qemu.CompatOf(d, broken)}

	for name, test := range map[string]struct {
		spec  hv.Spec
		wants []string
	}{
		// The whole ring: the last 64 KiB of some 130 KB.
		"never ready": {spoiled, []string{"\n11000\n", "\n20000\n", "no-way-to-go-on", "not ready in time"}},
		"QEMU ends":   {busy, []string{"host forwarding"}},
		"resume":      {broken, []string{"state does not load"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.Start(t.Context(), test.spec)
			if err == nil {
				t.Fatal("it was started")
			}
			if name == "never ready" {
				vm, _ := d.Get(t.Context(), test.spec.ID)
				if !errors.Is(err, hv.ErrBootTimeout) || !strings.Contains(err.Error(), "no-way-to-go-on") || !strings.Contains(vm.Failure, "no-way-to-go-on") {
					t.Errorf("Start: %v, Failure %q; want a boot time-out with the end of the console", err, vm.Failure)
				}
			}
			remove(t, d, test.spec.ID)
			_, path, _ := strings.Cut(err.Error(), "the whole log is in ")
			b, rerr := os.ReadFile(path)
			if rerr != nil || filepath.Dir(path) != filepath.Join(parent, "failed") {
				t.Fatalf("Start: %v; its log: %v", err, rerr)
			}
			for _, want := range test.wants {
				if !strings.Contains(string(b), want) {
					t.Errorf("the log lacks %q:\n%s", want, b[:min(len(b), 4000)])
				}
			}
		})
	}
}
